#!/usr/bin/env bash
# The table of docs/signals.md, cell by cell, for one rank, launch/run_local.sh and bare mpirun. Phases are met by
# events: a rank that waits for its configuration in a pipe, a line of metrics, a note in the run folder.
#   signals_test.sh TESSERA
set -uo pipefail
tessera=$(realpath "$1")
# shellcheck source=tests/launch/tiny_run.sh
source "$(dirname "${BASH_SOURCE[0]}")/tiny_run.sh"
local_run=$root/launch/run_local.sh
tiny_config 1000000 1000000 >"$work/config.yaml"
mpirun=(mpirun --oversubscribe --bind-to none -n 2)
((EUID != 0)) || mpirun+=(--allow-run-as-root)
# A background job of a script has SIGINT ignored, and tessera keeps to that.
plain=(env '--default-signal=INT,HUP')

# start HOW ARGUMENT ...: in the background, in a session of its own; $job, output in $work/output.
start() {
  local how=$1
  shift
  rm -rf "$work/run"
  local command=()
  case $how in
    one) command=("$tessera" train "$@") ;;
    local) command=("$local_run" "$@" -n 2) ;;
    mpirun) command=("${mpirun[@]}" "$tessera" train "$@") ;;
  esac
  setsid "${plain[@]}" "${command[@]}" >"$work/output" 2>&1 </dev/null &
  job=$!
}
# ends NAME CODE: waits, at most 60 s, and compares the exit code.
ends() {
  local code=0
  until_true 60 gone || { fail "$1: still there after 60 s"; kill -KILL -- "-$job"; }
  wait "$job" 2>/dev/null || code=$?
  [[ $code == "$2" ]] || fail "$1: exit code $code, not $2: $(<"$work/output")"
}
gone() { ! kill -0 "$job" 2>/dev/null; }
says() { grep -q "$2" "$work/output" || fail "$1: no '$2' in: $(<"$work/output")"; }
training() { [[ $(last_line_step "$work/run") -ge 3 ]]; }
until_training() { until_true 30 training || fail "$1: does not train: $(<"$work/output")"; }
# Nothing that was trained is lost: the last step of the metrics is saved.
nothing_lost() {
  local saved
  saved=$(saved_step "$work/run")
  [[ $saved -gt 0 && $saved == "$(last_line_step "$work/run")" ]] ||
    fail "$1: step $saved is saved, $(last_line_step "$work/run") was trained"
}

# Every signal in a step.
for how in one local; do
  for signal in TERM INT HUP USR1 USR2 XCPU; do
    name="$signal in a step, $how"
    start "$how" "$work/config.yaml"
    until_training "$name"
    kill "-$signal" "$job"
    ends "$name" 3
    nothing_lost "$name"
  done
done
# To the whole group, as a terminal does it: Ctrl-C, and a line that is cut.
for signal in INT HUP; do
  name="$signal to the group"
  start local "$work/config.yaml"
  until_training "$name"
  kill "-$signal" -- "-$job"
  ends "$name" 3
  nothing_lost "$name"
done

# A second signal a moment after the first: the same press of Ctrl-C on two ways, or another request.
for how in one local; do
  for pair in "INT INT" "TERM TERM" "USR1 TERM" "HUP INT"; do
    name="$pair close together, $how"
    start "$how" "$work/config.yaml"
    until_training "$name"
    kill "-${pair% *}" "$job"
    sleep 0.00$((RANDOM % 10))
    kill "-${pair#* }" "$job" 2>/dev/null
    ends "$name" 3
    nothing_lost "$name"
  done
done

# The second Ctrl-C of a person ends at once: here in a step that takes minutes.
tiny_config 10 10 >"$work/slow.yaml"
sed -i 's/global_batch_size: 4/global_batch_size: 1000/; s/hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1/hidden_size: 512, intermediate_size: 1024, num_hidden_layers: 8/' \
  "$work/slow.yaml"
for how in one local; do
  name="a second Ctrl-C, $how"
  start "$how" "$work/slow.yaml"
  until_true 60 grep -q 'time left' "$work/output" || fail "$name: did not start: $(<"$work/output")"
  sleep 1  # between the heading of the table and the step, a request to stop would be heard
  kill -INT "$job"
  sleep 0.6
  kill -INT "$job"
  ends "$name" 130
  [[ $how == one ]] || says "$name" "stopped at once"
done

# Before main: a rank that waits for a library to load (the pipe in its place) has no handlers.
mkfifo "$work/library.so" "$work/configuration"
name="before main, one"
rm -rf "$work/run"
setsid "${plain[@]}" env LD_PRELOAD="$work/library.so" "$tessera" train "$work/config.yaml" >"$work/output" 2>&1 &
job=$!
in_tessera() { [[ $(readlink "/proc/$job/exe") == "$tessera" ]]; }
until_true 30 in_tessera || fail "$name: did not start"
kill -USR1 "$job"
ends "$name" 138
# A request that was blocked when the process began waits for main.
name="blocked before main, one"
# shellcheck disable=SC2016  # for the inner shell
setsid env --block-signal=USR1 bash -c 'kill -USR1 $$; exec "$@"' - "$tessera" train "$work/config.yaml" \
  >"$work/output" 2>&1 &
job=$!
ends "$name" 3
says "$name" "before training began"
# With run_local.sh the request waits for ranks that are not there yet.
name="before main, local"
cat >"$work/waiting-rank" <<SCRIPT
#!/usr/bin/env bash
: >"$work/waiting.\$OMPI_COMM_WORLD_RANK"
LD_PRELOAD=$work/library.so exec "$tessera" "\$@"
SCRIPT
# A rank whose number is in \$1's place reads its configuration from the pipe.
cat >"$work/reading-rank" <<SCRIPT
#!/usr/bin/env bash
echo \$\$ >"$work/pid.\$OMPI_COMM_WORLD_RANK"
[[ \$OMPI_COMM_WORLD_RANK != 1 ]] || exec "$tessera" train "$work/configuration"
exec "$tessera" "\$@"
SCRIPT
chmod +x "$work/waiting-rank" "$work/reading-rank"
waiting() { [[ -e $work/waiting.0 && -e $work/waiting.1 ]]; }
TESSERA_BIN=$work/waiting-rank start local "$work/config.yaml"
until_true 30 waiting || fail "$name: did not start"
kill -TERM "$job"
(while :; do : >"$work/library.so"; done) &  # an empty library for each rank, which is left out
feeder=$!
ends "$name" 3
kill "$feeder"
says "$name" "before training began"

# In start-up, while the configuration is read. Of two ranks, one alone hears of it.
catches_usr1() { (((0x$(sed -n 's/^SigCgt:\t//p' "/proc/$1/status") & 0x200) != 0)); }
name="start-up, one"
start one "$work/configuration"
until_true 30 in_tessera
until_true 30 catches_usr1 "$job" || fail "$name: no handlers"
kill -HUP "$job"
cat "$work/config.yaml" >"$work/configuration"
ends "$name" 3
says "$name" "before training began"
for how in local mpirun; do
  name="start-up of one of two ranks, $how"
  rm -rf "$work/run" "$work"/pid.*
  if [[ $how == local ]]; then
    TESSERA_BIN=$work/reading-rank start local "$work/config.yaml"
  else
    setsid "${plain[@]}" "${mpirun[@]}" "$work/reading-rank" train "$work/config.yaml" >"$work/output" 2>&1 &
    job=$!
  fi
  until_true 30 test -s "$work/pid.1" || fail "$name: did not start"
  rank=$(<"$work/pid.1")
  until_true 30 catches_usr1 "$rank" || fail "$name: no handlers"
  kill -USR2 "$rank"
  cat "$work/config.yaml" >"$work/configuration"
  ends "$name" 3
  says "$name" "before training began"
done

# In a validation: soon, with the step saved; the last one's is no stop of the run, and is made up.
tiny_config 4 4 all >"$work/long-eval.yaml"
sed -i "s|valid: \[$work/valid\]|valid: [$work/tokens]|; s/global_batch_size: 4/global_batch_size: 1/; s/micro_batch_size: 2/micro_batch_size: 1/" \
  "$work/long-eval.yaml"
for how in one local; do
  for steps in 4 8; do
    name="in the validation of step 4 of $steps, $how"
    start "$how" "$work/long-eval.yaml" --set "training.steps=$steps"
    until_true 30 test -e "$work/run/checkpoints/step-00000004/manifest.json" || fail "$name: no save"
    kill -TERM "$job"
    ends "$name" $((steps == 4 ? 0 : 3))
    [[ -e $work/run/owed-validation.json ]] || fail "$name: not owed: $(<"$work/output")"
  done
done

# At the end: a run that has said its last word.
for how in one local; do
  for try in 1 2 3; do
    name="while it ends, $how, $try"
    start "$how" "$work/config.yaml"
    until_training "$name"
    kill -TERM "$job"
    stopped() { grep -q 'stopped on request' "$work/output"; }
    until_true 60 stopped || fail "$name: does not stop"
    kill -TERM "$job" 2>/dev/null
    [[ $how == local ]] || kill -INT "$job" 2>/dev/null
    ends "$name" 3
  done
done

# Signals that were ignored stay ignored: nohup, and SIGINT of a job in the background.
tiny_config 300 100 >"$work/short.yaml"
for how in one local; do
  for signal in HUP INT; do
    name="ignored $signal, $how"
    plain=(env "--ignore-signal=$signal")
    start "$how" "$work/short.yaml"
    until_training "$name"
    kill "-$signal" -- "-$job"
    ends "$name" 0
  done
done
plain=(env '--default-signal=INT,HUP')

# Nobody reads the output any more.
name="closed pipe"
rm -rf "$work/run"
code=$( ("$local_run" "$work/short.yaml" -n 2 2>/dev/null; echo $? >"$work/code") | head -n 1 >/dev/null; cat "$work/code")
[[ $code == 0 ]] || fail "$name: exit code $code"
[[ $(saved_step "$work/run") == 300 ]] || fail "$name: not trained to the end"

# Bare mpirun passes on USR1 and USR2, and kills its ranks on others; what is saved stays whole.
for signal in USR1 USR2; do
  name="$signal in a step, mpirun"
  start mpirun "$work/config.yaml"
  until_training "$name"
  kill "-$signal" "$job"
  ends "$name" 3
  nothing_lost "$name"
done

((failures == 0)) || exit 1
echo "signals: all as the table says"
