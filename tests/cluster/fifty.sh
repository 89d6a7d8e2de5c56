#!/usr/bin/env bash
# Jobs of random lengths under a real Slurm, with random signals and kills at random moments: all of them must end
# complete, with the trace of an unbroken run bit for bit, and none may stay in the queue or hang.
#   fifty.sh [JOBS [SEED]]     50 jobs by default, about 25 minutes on two cores; see run.sh for what it needs
set -uo pipefail
# shellcheck source=tests/cluster/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
count=${1:-50} seed=${2:-1}
readonly lengths=(60 120 200 300) side_by_side=12
readonly things=(asked asked asked_all asked_twice killed killed stopped requeued)
[[ $count =~ ^[1-9][0-9]{0,3}$ && $seed =~ ^[0-9]+$ ]] || { sed -n '2,4s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
missing=$("$cluster" missing | paste -sd ' ')
if [[ -n $missing ]]; then
  echo "left out: the virtual cluster; not there: $missing"
  exit 0
fi
CLUSTER_FOLDERS=$(folders_for_nodes | paste -sd ' ')
export CLUSTER_FOLDERS
workers=()
# shellcheck disable=SC2317
clean_up() {
  kill "${workers[@]}" 2>/dev/null
  "$cluster" down
}
trap clean_up EXIT
trap 'exit 130' INT TERM
# Slurm lets four jobs run at a time, however many there are.
CLUSTER_CPUS=6 "$cluster" up 1 || exit 1
prepare 200
results=$CLUSTER_DIR/results
rm -rf "$results"
mkdir -p "$results"
partition=b1 variables=''

for length in "${lengths[@]}"; do
  job=$(submit "unbroken-$length" "" --set "training.steps=$length")
  until_true 600 ended "$job"
  [[ $(job_field "$job" JobState) == COMPLETED && $(curve "unbroken-$length" | grep -c '"loss"') == "$length" ]] ||
    { echo "fifty.sh: error: the unbroken run of $length steps failed" >&2; exit 1; }
done

# disturb JOB WHAT: one of the things that happen to jobs.
disturb() {
  local pid
  pid=$(ranks "$1" | awk -v n="$((RANDOM % 4))" '$1 == n {print $3}')
  case $2 in
    asked) "$cluster" admin scancel -b -s USR1 "$1" ;;
    asked_all) "$cluster" admin scancel --full -s USR1 "$1" ;;
    asked_twice)
      "$cluster" admin scancel -b -s USR1 "$1"
      sleep "0.$((RANDOM % 900 + 100))"
      "$cluster" admin scancel -b -s USR1 "$1"
      ;;
    killed) [[ -z $pid ]] || kill -KILL "$pid" ;;
    stopped) [[ -z $pid ]] || kill -STOP "$pid" ;;
    requeued) "$cluster" admin scontrol requeue "$1" ;;
  esac 2>/dev/null
}
begun_or_ended() { in_turn "$1" "$2" || ended "$1"; }
came_to() { reached "$2" "$3" || out_of_turn "$1"; }
# one NUMBER: a job's life.
one() {
  local name=job-$1 length job events i what delay story='' failed=''
  RANDOM=$((seed * 10007 + $1))
  length=${lengths[RANDOM % ${#lengths[@]}]}
  events=$((1 + RANDOM % 3))
  job=$(submit "$name" "" --set "training.steps=$length")
  for ((i = 0; i < events; i++)); do
    # A turn follows the one before after two minutes, however that ended.
    until_true 400 begun_or_ended "$job" "$i" || break
    if ended "$job"; then break; fi
    # At a random time of its start, or a random step.
    if ((RANDOM % 2 == 0)); then
      delay=$((RANDOM % 6000))
      sleep "$(printf '%d.%03d' $((delay / 1000)) $((delay % 1000)))"
    else
      until_true 120 came_to "$job" "$name" $((RANDOM % length))
    fi
    what=${things[RANDOM % ${#things[@]}]}
    running "$job" || continue
    disturb "$job" "$what"
    story+=", $what at step $(last_step "$name")"
    # PMIx waits five minutes for a rank that was stopped before MPI had begun.
    until_true 400 out_of_turn "$job" || { failed="hangs after $what"; break; }
  done
  until_true 900 ended "$job" || failed="has not ended: $(job_field "$job" JobState) $(job_field "$job" Reason)"
  story="$length steps$story: $(job_field "$job" JobState) $(job_field "$job" ExitCode), $(job_field "$job" Restarts) requeues"
  [[ $(job_field "$job" JobState) == COMPLETED ]] || failed=${failed:-not completed}
  diff <(curve "$name") <(curve "unbroken-$length") >"$results/$name.difference" || failed=${failed:-another trace}
  no_ranks "$job" || failed=${failed:-ranks are left}
  printf '%s %s (job %s): %s\n' "${failed:+FAILED: }${failed:-good}" "$name" "$job" "$story" >"$results/$name"
  echo >&8
}

mkfifo "$CLUSTER_DIR/run/free"
exec 8<>"$CLUSTER_DIR/run/free"
rm "$CLUSTER_DIR/run/free"
for ((i = 0; i < side_by_side; i++)); do echo >&8; done
for ((i = 1; i <= count; i++)); do
  read -r _ <&8
  one "$i" 2>"$results/job-$i.errors" &
  workers+=($!)
done
wait "${workers[@]}"
workers=()
failed=0
for ((i = 1; i <= count; i++)); do
  cat "$results/job-$i"
  ! grep -q '^FAILED' "$results/job-$i" || failed=$((failed + 1))
done
waiting=$("$cluster" admin squeue -h | wc -l)
((waiting == 0)) || echo "FAILED: $waiting jobs are still in the queue"
echo "$((count - failed)) of $count jobs complete and bit for bit, $waiting left in the queue ($((SECONDS / 60)) min, seed $seed)"
((failed == 0 && waiting == 0))
