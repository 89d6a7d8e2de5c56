#!/usr/bin/env bash
# Random signals and pairs of signals at random moments (start, step, save, validation, end) of a run of one rank
# and of launch/run_local.sh with two. Whatever comes: an exit code of docs/signals.md, no hang, nothing that was
# saved is lost, and once the run is done, again and again, its metrics are an unbroken run's bit for bit.
#   random_signals.sh TESSERA [TRIALS [SEED]]
set -uo pipefail
tessera=$(realpath "$1") trials=${2:-50} seed=${3:-1}
# shellcheck source=tests/launch/tiny_run.sh
source "$(dirname "${BASH_SOURCE[0]}")/tiny_run.sh"
readonly steps=60 every=6
tiny_config $steps $every >"$work/config.yaml"
signals=(TERM INT HUP USR1 USR2 XCPU)
RANDOM=$seed

# run_in_background HOW: $job is the process that the signals go to.
run_in_background() {
  local command=("$tessera" train "$work/config.yaml")
  touch "$work/started"
  : >"$work/output"  # here already: the moments look into it before the job may have begun
  [[ $1 == one ]] || command=("$root/launch/run_local.sh" "$work/config.yaml" -n 2)
  setsid env --default-signal=INT "${command[@]}" --set "run.dir=$work/$1" >"$work/output" 2>&1 </dev/null &
  job=$!
}
# pause MS
pause() { sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"; }
gone() { ! kill -0 "$job" 2>/dev/null; }
speaking() { gone || [[ -s $work/output ]]; }
reached() { gone || [[ $(last_line_step "$1") -ge $2 ]]; }
saving() { gone || compgen -G "$1/checkpoints/*.partial" >/dev/null; }
owed() { gone || [[ $1/owed-validation.json -nt $work/started ]]; }  # of this start, not one that it makes up
ending() { gone || grep -q '^done\|^stopped' "$work/output"; }

for how in one local; do
  run_in_background $how
  wait $job || { cat "$work/output"; exit 1; }
  curve "$work/$how" >"$work/$how.whole"
  rm -r "${work:?}/$how"
done
[[ $(grep -c '"loss"' "$work/one.whole") == "$steps" && $(grep -c eval_loss "$work/one.whole") == $((steps / every)) ]] ||
  { echo "the unbroken run is not whole"; exit 1; }

# A run that is done has every line, once.
check_done() {
  diff <(curve "$work/$1") "$work/$1.whole" >"$work/difference" ||
    fail "$2: the metrics are not an unbroken run's: $(head -n 5 "$work/difference")"
  rm -r "${work:?}/$1"
}

declare -A counts=()
hangs=0
for ((trial = 1; trial <= trials; trial++)); do
  how=one most_start=500
  ((RANDOM % 2 == 0)) || how=local most_start=1500
  run=$work/$how
  moments=(start step save validation end)
  moment=${moments[RANDOM % 5]}
  first=${signals[RANDOM % 6]} second='' gap=0
  if ((RANDOM % 2 == 0)); then second=${signals[RANDOM % 6]} gap=$((RANDOM % 30)); fi
  # Now and then the second Ctrl-C of a person.
  if ((RANDOM % 10 == 0)); then first=INT second=INT gap=$((520 + RANDOM % 200)); fi
  name="trial $trial of seed $seed: $first${second:+ and after $gap ms $second} in $moment, $how"
  before=$(saved_step "$run")
  run_in_background $how
  # What an earlier start has left may look like the moment: only a start that speaks has left its start-up behind.
  [[ $moment == start ]] || until_true 60 speaking
  case $moment in
    start) pause $((RANDOM % most_start)) ;;
    step) until_true 60 reached "$run" $((before + 1 + RANDOM % every)); pause $((RANDOM % 10)) ;;
    save) until_true 60 saving "$run" ;;
    validation) until_true 60 owed "$run"; pause $((RANDOM % 10)) ;;
    end)
      until_true 60 reached "$run" "$steps"
      ((RANDOM % 2 == 0)) || until_true 60 ending
      pause $((RANDOM % 50))
      ;;
  esac
  target=$job
  ((RANDOM % 2 == 0)) || target=-$job  # the group, as a terminal does it
  kill "-$first" -- "$target" 2>/dev/null
  if [[ -n $second ]]; then pause "$gap"; kill "-$second" -- "$target" 2>/dev/null; fi
  if ! until_true 60 gone; then
    hangs=$((hangs + 1))
    fail "$name: still there after 60 s: $(<"$work/output")"
    kill -KILL -- "-$job"
  fi
  code=0
  wait "$job" 2>/dev/null || code=$?
  counts[$how $moment $code]=$((${counts[$how $moment $code]:-0} + 1))

  after=$(saved_step "$run")
  ((after >= before)) || fail "$name: step $before was saved, now only $after"
  said=$(sed -n 's/.*stopped on request after step \([0-9]*\) of.*, saved.*/\1/p' "$work/output")
  case $code in
    0) ((after == steps)) || fail "$name: exit code 0 at step $after: $(<"$work/output")" ;;
    3) [[ ${said:-$before} == "$after" ]] || fail "$name: stopped after step ${said:-$before}, but $after is saved" ;;
    *)
      # Ended by the signal: a second Ctrl-C, or before the first instruction, which says nothing.
      ((gap >= 500 && code == 130)) || [[ $moment == start && $code -gt 128 && ! -s $work/output ]] ||
        fail "$name: exit code $code: $(<"$work/output")"
      ;;
  esac
  if ((code == 0)) && [[ ! -e $run/owed-validation.json ]]; then check_done $how "$name"; fi
done
for how in one local; do
  run_in_background $how
  code=0
  wait $job || code=$?
  ((code == 0)) || fail "the last start of $how: exit code $code: $(<"$work/output")"
  check_done $how "the last start of $how"
done

echo "$trials trials, seed $seed: exit codes by ranks and moment"
for key in "${!counts[@]}"; do echo "  $key: ${counts[$key]}"; done | sort
echo "$hangs hangs, $failures failures"
((failures == 0))
