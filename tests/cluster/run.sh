#!/usr/bin/env bash
# The batch script and the program under a real Slurm, on a cluster of virtual nodes inside this machine: what becomes of a
# job that is preempted, killed, cut off, ... Each case says the state in Slurm, the exit code, the requeues and the steps
# that were lost, and holds the trace (metrics.jsonl) against that of an unbroken run, bit for bit.
#
#   tests/cluster/run.sh                 all cases, five side by side: a requeue takes Slurm two minutes
#   tests/cluster/run.sh --short         five of them, at most six minutes
#   tests/cluster/run.sh CASE ...        these
#   tests/cluster/run.sh --list          their names
#   tests/cluster/run.sh --slots N ...   N side by side
#
# Needs root and Debian's slurmctld, slurmd, slurm-client, munge, openmpi-bin and iproute2; without them it says what is
# missing, and that it is left out. TESSERA_BIN names another program. CLUSTER_DIR: see cluster.sh; logs stay there.
set -uo pipefail
# shellcheck source=tests/cluster/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/cluster/cases.sh
source "$(dirname "${BASH_SOURCE[0]}")/cases.sh"

usage() { sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
cases=() slots=5
while (($# > 0)); do
  case $1 in
    --short) cases=("${short_cases[@]}") moments=3 ;;
    --slots)
      slots=${2:-}
      [[ $slots =~ ^[1-9][0-9]?$ ]] || { usage >&2; exit 2; }
      shift
      ;;
    --list) printf '%s\n' "${all_cases[@]}"; exit 0 ;;
    -h | --help) usage; exit 0 ;;
    *)
      [[ " ${all_cases[*]} " == *" $1 "* ]] || { echo "run.sh: error: no case '$1'; --list names them" >&2; exit 2; }
      cases+=("$1")
      ;;
  esac
  shift
done
((${#cases[@]} > 0)) || cases=("${all_cases[@]}")
((slots <= ${#cases[@]})) || slots=${#cases[@]}

missing=$("$cluster" missing | paste -sd ' ')
if [[ -n $missing ]]; then
  echo "left out: the virtual cluster; not there: $missing"
  exit 0
fi
[[ -x $program ]] || { echo "run.sh: error: $program is not there; tests/run.sh builds it" >&2; exit 2; }
CLUSTER_FOLDERS=$(folders_for_nodes | paste -sd ' ')
export CLUSTER_FOLDERS
running_cases=()
# shellcheck disable=SC2317
clean_up() {
  kill "${running_cases[@]}" 2>/dev/null
  "$cluster" down
}
trap clean_up EXIT
trap 'exit 130' INT TERM
"$cluster" up "$slots" || exit 1
prepare 200
results=$CLUSTER_DIR/results
rm -rf "$results"
mkdir -p "$results"

# The unbroken runs.
partition=b1 variables=''
references=("$(submit unbroken "")")
if [[ " ${cases[*]} " =~ \ (time_limit|no_slurmd)\  ]]; then
  references+=("$(submit long "" --set "training.steps=$long_steps")")
fi
for job in "${references[@]}"; do
  until_true 900 ended "$job"
  if [[ $(job_field "$job" JobState) != COMPLETED ]]; then
    cat "$work/unbroken.log"
    echo "run.sh: error: the unbroken run failed: $(job_field "$job" JobState)" >&2
    exit 1
  fi
done
[[ $(curve unbroken | grep -c '"loss"') == 200 ]] || { echo "run.sh: error: the unbroken run is not whole" >&2; exit 1; }
echo "unbroken run: 200 steps, $SECONDS s after the start"

# run_case NAME SLOT
run_case() {
  local start=$SECONDS
  slot=$2 partition=b$2 variables=''
  a=n$((3 * slot - 2)) b=n$((3 * slot - 1)) c=n$((3 * slot))
  "case_$1" >"$results/$1" 2>&1
  echo "time: $((SECONDS - start)) s" >>"$results/$1"
  for node in $a $b $c; do
    "$cluster" boot "$node" >>"$results/$1" 2>&1
  done
  echo "$slot" >&8
}

failed=0
report() {
  local verdict=passed
  if grep -q '^FAILED' "$results/$1"; then verdict=FAILED; fi
  printf '%-7s %-15s %s\n' "$verdict" "$1" "$(grep -v '^FAILED' "$results/$1" | paste -sd ';' | sed 's/;/; /g')"
  grep '^FAILED' "$results/$1" | sed 's/^/        /'
  [[ $verdict == passed ]]
}
# Free slots wait in a pipe.
mkfifo "$CLUSTER_DIR/run/free"
exec 8<>"$CLUSTER_DIR/run/free"
rm "$CLUSTER_DIR/run/free"
for ((i = 1; i <= slots; i++)); do echo "$i" >&8; done
for name in "${cases[@]}"; do
  read -r slot <&8
  run_case "$name" "$slot" &
  running_cases+=($!)
done
for i in "${!cases[@]}"; do
  wait "${running_cases[i]}"
  report "${cases[i]}" || failed=$((failed + 1))
done
running_cases=()
echo "$((${#cases[@]} - failed)) passed, $failed failed ($((SECONDS / 60)) min $((SECONDS % 60)) s); logs: $work, $results"
((failed == 0))
