#!/usr/bin/env bash
# Tests launch/train.sbatch with stand-ins of Slurm's commands and of tessera: how it starts the ranks, and what it does
# with the job when they have ended. tests/cluster/run.sh does that under a real Slurm. Prints each failure; exit code 1
# if any.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
  printf 'FAILED: %s\n' "$*"
  failures=$((failures + 1))
}

# The stand-ins. What they are to do is in variables; what they were asked is in $work/calls.
mkdir "$work/bin" "$work/submitted"
export WORK=$work RUN=$work/submitted/run
cat >"$work/bin/tessera" <<'END'
#!/usr/bin/env bash
echo "tessera $*" >>"$WORK/calls"
[[ ${SHOW_ASKS:-no} == no ]] || { kill -USR1 "$(<"$WORK/pid")"; sleep 0.1; }
printf 'run:\n  dir: %s\n  seed: 1\nmodel:\n  dir: none\n' "${RUN_TEXT:-$RUN}"
exit "${SHOW_CODE:-0}"
END
cat >"$work/bin/srun" <<'END'
#!/usr/bin/env bash
if [[ $* == --mpi=list ]]; then
  printf 'MPI plugin types are...\n\tnone\n\tpmi2\n'
  [[ ${NO_PMIX:-no} == yes ]] || printf '\tpmix\n'
  exit
fi
echo "srun $*" >>"$WORK/calls"
starts=$(($(cat "$WORK/starts" 2>/dev/null || echo 0) + 1))
echo "$starts" >"$WORK/starts"
mkdir -p "$RUN/logs"
# Of the second start in one allocation.
if ((starts == 2)) && [[ -n ${AGAIN_CODE:-} ]]; then CODE=$AGAIN_CODE BEGUN=yes; fi
[[ ${BEGUN:-yes} == no ]] || echo "$starts" >"$RUN/logs/starts"
if [[ ${PROGRESS:-no} == yes ]]; then
  mkdir -p "$RUN/checkpoints"
  folder=$(printf '%s/checkpoints/step-%08d' "$RUN" $(($(find "$RUN/checkpoints" -name 'step-*' | wc -l) + 1)))
  mkdir "$folder"
  : >"$folder/manifest.json"
fi
if [[ -n ${OUTCOME:-} ]]; then
  printf '{"outcome": "%s", "exit_code": %s, "reason": "%s", "cause": "%s", "rank": %s, "host": %s, "step": 12,\n' \
    "${OUTCOME%/*}" "${OUTCOME_CODE:-1}" "${OUTCOME#*/}" "${CAUSE:-[x] a \\\"bad\\\" thing}" "${BAD_RANK:-null}" \
    "${BAD_HOST:-null}" >"$RUN/logs/outcome.json"
  printf ' "start": %s, "job": %s, "restart": %s, "time": "%s"}\n' "$starts" "${OUTCOME_JOB:-null}" \
    "${OUTCOME_RESTART:-null}" "$(date +%N)" >>"$RUN/logs/outcome.json"
fi
[[ -z ${MESSAGES:-} ]] || printf '%b\n' "$MESSAGES" >&2
[[ ${ASKED:-no} == no ]] || { trap "" USR1; kill -USR1 "$PPID"; sleep 0.1; }
[[ ${CANCELLED:-no} == no ]] || { trap '' TERM; kill -TERM "$PPID"; sleep 0.1; }
if [[ ${DEAF:-no} == yes ]]; then
  trap '' USR1
  for ((i = 0; i < 300; i++)); do sleep 0.1; done
fi
exit "${CODE:-0}"
END
cat >"$work/bin/mpirun" <<'END'
#!/usr/bin/env bash
echo "mpirun $*" >>"$WORK/calls"
END
cat >"$work/bin/scontrol" <<'END'
#!/usr/bin/env bash
case $1 in
  show)
    if [[ $2 == hostnames ]]; then echo n1; exit; fi
    printf 'JobId=7 JobName=tessera\n   JobState=%s Reason=None Restarts=%s ExitCode=0:0\n' \
      "$(cat "$WORK/state" 2>/dev/null || echo "${STATE:-RUNNING}")" "${TURN:-${SLURM_RESTART_COUNT:-0}}"
    printf '   StartTime=2026-12-01T10:00:00 EndTime=Unknown\n   PreemptEligibleTime=2026-12-01T10:00:01 PreemptTime=%s\n' \
      "${PREEMPTED:-None}"
    printf '   ReqNodeList=%s ExcNodeList=%s\n' "${WANTED_NODES:-(null)}" "${EXCLUDED:-(null)}"
    printf '   Command=%s c.yaml --set a=b\n' "$COMMAND"
    [[ $3 != 11 ]] || printf 'JobId=12\n   Command=%s c.yaml --set a=b\n' "$COMMAND"
    ;;
  requeue)
    echo "scontrol $*" >>"$WORK/calls"
    [[ ${NO_REQUEUE:-no} == no ]] || { echo "Requested operation is presently disabled" >&2; exit 1; }
    echo PENDING >"$WORK/state"
    [[ ${DEAF:-no} == no ]] || kill -TERM "$(<"$WORK/pid")"
    ;;
  *) echo "scontrol $*" >>"$WORK/calls" ;;
esac
END
cat >"$work/bin/squeue" <<'END'
#!/usr/bin/env bash
echo "${LEFT:-1:00:00}"
END
cat >"$work/bin/sinfo" <<'END'
#!/usr/bin/env bash
printf 'n%s idle\n' 1 2 3 ${FOURTH:-}
END
chmod +x "$work"/bin/*
export PATH=$work/bin:$PATH TESSERA_BIN=$work/bin/tessera TESSERA_RESTART_PAUSE=0
export SLURM_JOB_ID=7 SLURM_SUBMIT_DIR=$work/submitted SLURM_JOB_NUM_NODES=2 SLURM_NTASKS_PER_NODE=4 \
  SLURM_CPUS_PER_TASK=8 SLURM_JOB_NODELIST='n[1-2]' SLURM_JOB_PARTITION=batch TESSERA_NETWORK=none
export COMMAND=$root/launch/train.sbatch
unset SLURM_NTASKS SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID SLURM_RESTART_COUNT SLURM_GPUS_ON_NODE SLURM_JOB_GPUS \
  TESSERA_MAX_RESTARTS TESSERA_LAUNCHER

# turn [VARIABLE=VALUE ...]: one turn of the job, as Slurm runs it: from a copy in a folder of its own. Leaves $code,
# $output, $calls and $ended, which is 'requeue' or the exit code.
cp "$root/launch/train.sbatch" "$work/slurm_script"
turn() {
  rm -f "$work/calls" "$work/state" "$work/starts"
  : >"$work/calls"
  : >"$work/log"
  code=0
  # shellcheck disable=SC2016  # the inner shell's
  (cd "$work/submitted" && env "$@" bash -c 'echo $$ >"$WORK/pid"; exec "$0" "$@"' "$work/slurm_script" "${arguments[@]}") \
    >>"$work/log" 2>&1 </dev/null || code=$?
  output=$(<"$work/log") calls=$(<"$work/calls")
  ended=$code
  if [[ $'\n'$calls == *$'\nscontrol requeue '"${job:-7}"* ]]; then ended=requeue; fi
}
arguments=(c.yaml --set a.b=1)
new_run() { rm -rf "$RUN"; }
expect() { [[ $ended == "$2" ]] || fail "$1: $ended, not $2; calls: $calls; output: $output"; }
expect_text() { [[ $output == *"$2"* ]] || fail "$1: no '$2' in: $output"; }
expect_call() { [[ $'\n'$calls$'\n' == *$'\n'"$2"$'\n'* ]] || fail "$1: no call '$2' in: $calls"; }

# How a start that ended with CODE and this OUTCOME goes on. `no` and `yes`: the batch shell was asked by USR1; Slurm asks
# the job to make room; there is a newer checkpoint.
while read -r state_code outcome asked preempted progress state want; do
  [[ -n $state_code ]] || continue
  new_run
  [[ $outcome != none ]] || outcome=''
  [[ $preempted == no ]] || preempted=2026-12-01T10:30:00
  outcome_code=$want
  [[ $want == [0-9] ]] || outcome_code=1
  turn CODE="$state_code" OUTCOME="$outcome" OUTCOME_CODE="$outcome_code" ASKED="$asked" PREEMPTED="${preempted/no/None}" \
    PROGRESS="$progress" STATE="$state"
  expect "code $state_code, outcome ${outcome:-none}, asked $asked, preempted $preempted, progress $progress, $state" "$want"
done <<'END'
0    none                no   no   no   RUNNING    0
0    done/               no   no   yes  RUNNING    0
0    done/               yes  no   yes  RUNNING    0
138  done/               yes  no   yes  RUNNING    0
3    none                no   no   yes  RUNNING    0
3    none                yes  no   yes  RUNNING    requeue
3    none                no   yes  yes  RUNNING    requeue
3    stopped/request     no   no   yes  RUNNING    0
3    stopped/request     yes  no   yes  RUNNING    requeue
3    stopped/request     yes  no   no   RUNNING    requeue
3    stopped/request     no   yes  yes  RUNNING    requeue
3    stopped/request     no   no   yes  CANCELLED  0
3    stopped/request     yes  no   yes  CANCELLED  0
3    stopped/request     yes  yes  yes  COMPLETING 0
3    stopped/stop_after  no   no   yes  RUNNING    0
3    stopped/stop_after  yes  no   yes  RUNNING    0
137  stopped/request     yes  no   yes  RUNNING    requeue
138  stopped/request     yes  no   yes  RUNNING    requeue
138  none                yes  no   no   RUNNING    requeue
138  none                no   no   no   RUNNING    requeue
2    none                no   no   no   RUNNING    2
2    none                yes  no   no   RUNNING    2
2    user_error/         no   no   no   RUNNING    2
137  user_error/         no   no   no   RUNNING    2
137  user_error/         yes  yes  no   RUNNING    2
4    none                no   no   no   RUNNING    4
4    replaced/replaced   no   no   no   RUNNING    4
143  replaced/replaced   yes  no   no   RUNNING    4
1    none                no   no   no   RUNNING    requeue
1    none                no   no   yes  RUNNING    requeue
137  none                no   no   no   RUNNING    requeue
137  failed/lost_rank    no   no   no   RUNNING    requeue
137  failed/hang         no   no   yes  RUNNING    requeue
1    failed/error        yes  no   no   RUNNING    requeue
1    failed/error        no   no   no   CANCELLED  1
143  none                no   no   no   CANCELLED  143
END

# It starts the ranks once (L19), each with its cores.
new_run
turn
expect_call "start" "srun --mpi=pmix --nodes=2 --ntasks=8 --kill-on-bad-exit=1 --distribution=block:block $TESSERA_BIN train c.yaml --set a.b=1"
[[ $(grep -c '^srun\|^mpirun' <<<"$calls") == 1 ]] || fail "start: not one launcher: $calls"
for option in nodes=2 ntasks-per-node=4 time=1:00:00 signal=B:USR1@120 requeue open-mode=append; do
  grep -q "^#SBATCH --$option\$" "$root/launch/train.sbatch" || fail "no #SBATCH --$option"
done
turn NO_PMIX=yes
[[ $calls == *"mpirun -n 8 --bind-to none --map-by ppr:4:node -x OMP_NUM_THREADS "*" $TESSERA_BIN train c.yaml"* ]] ||
  fail "without PMIx: $calls"
[[ $calls != *srun* ]] || fail "without PMIx: srun starts it too: $calls"
turn SLURM_JOB_NUM_NODES=3
[[ $calls == *"--nodes=3 --ntasks=12 "* ]] || fail "more nodes: $calls"

# A wrong configuration is told once, and no rank is started.
turn SHOW_CODE=2
expect "wrong configuration" 2
[[ $calls != *srun* ]] || fail "wrong configuration: ranks were started: $calls"
arguments=()
turn
expect "no configuration" 2
arguments=(c.yaml --set a.b=1)
turn TESSERA_BIN="$work/none"
expect "no program" 2
expect_text "no program" "$work/none is not there"
turn SLURM_SUBMIT_DIR=/ COMMAND=/none/train.sbatch
expect "no repository" 2
expect_text "no repository" "submit from the repository's root"
# A copy of the script elsewhere finds the rest where it was submitted.
mkdir "$work/submitted/launch"
cp "$root"/launch/{slurm_lib,env}.sh "$work/submitted/launch"
turn COMMAND=/none/my.sbatch
expect "a copy" 0
rm -r "$work/submitted/launch"

# Asked before the ranks are started, or by a script that sources this one: none is.
turn SHOW_ASKS=yes
expect "asked early" requeue
[[ $calls != *srun* ]] || fail "asked early: ranks were started: $calls"
turn stop_asked=true
expect "asked at once" requeue
# A second request does no harm.
turn CODE=138 OUTCOME=stopped/request ASKED=yes
expect "asked twice" requeue
# A job that may not be put back: what is saved is no failure, so that a chain goes on.
turn CODE=3 OUTCOME=stopped/request ASKED=yes NO_REQUEUE=yes
[[ $code == 0 ]] || fail "not put back, saved: $code"
expect_text "not put back" "this job cannot be put back"
turn CODE=1 OUTCOME=failed/error OUTCOME_CODE=1 NO_REQUEUE=yes
[[ $code == 1 ]] || fail "not put back, failed: $code"
# scancel, as Slurm does it: SIGTERM for this script too, and the state is another.
turn CODE=3 OUTCOME=stopped/request CANCELLED=yes STATE=CANCELLED
expect "scancel" 0
# A preemption of an earlier turn.
turn CODE=3 OUTCOME=stopped/request PREEMPTED=2026-12-01T09:59:59
expect "an old preemption" 0

# The time limit comes near and the ranks do not end: out, before it is a TIMEOUT.
turn DEAF=yes LEFT=0:10
expect "deaf ranks" requeue
expect_text "deaf ranks" "10 s before the time limit the ranks have not ended"
# Slots in which nothing can be trained do not follow each other for ever.
new_run
for restart in 0 1 2 3; do turn SLURM_RESTART_COUNT=$restart CODE=3 OUTCOME=stopped/request ASKED=yes LEFT=1:40; done
expect "slots that are too short" 1
expect_text "slots that are too short" "its time was up before anything was trained"

# A crash loop ends, and says what the failures had in common; a newer checkpoint counts anew.
new_run
bad=(CODE=137 OUTCOME=failed/lost_rank OUTCOME_CODE=1 BAD_RANK=3 BAD_HOST='"n2"' "WANTED_NODES=n1,n2")
for restart in 0 1 2; do
  turn "${bad[@]}" SLURM_RESTART_COUNT=$restart OUTCOME_RESTART=$restart
  expect "crash $restart" requeue
done
expect_text "crash 2" 'host n2, rank 3, cause: [x] a "bad" thing'
turn "${bad[@]}" SLURM_RESTART_COUNT=3
expect "crash 3" 1
expect_text "crash 3" 'giving up after 4 starts in a row without a newer checkpoint than 0'
expect_text "crash 3" 'in common: host n2, rank 3, after step 12, exit code 1, cause: [x] a "bad" thing'
new_run
for progress in no no yes no no no; do
  turn "${bad[@]}" PROGRESS=$progress
  expect "progress $progress" requeue
done
turn "${bad[@]}"
expect "no progress any more" 1
new_run
turn "${bad[@]}" TESSERA_MAX_RESTARTS=0
expect "no restarts" 1
turn "${bad[@]}" TESSERA_MAX_RESTARTS=0 PROGRESS=yes
expect "no restarts, progress" 1
new_run
turn "${bad[@]}" TESSERA_MAX_RESTARTS=1
expect "one restart" requeue
turn "${bad[@]}" TESSERA_MAX_RESTARTS=1 BAD_HOST='"n1"' BAD_RANK=0
expect "one restart, second failure" 1
expect_text "one restart, second failure" "in common: after step 12"
[[ $output != *'in common: host'* ]] || fail "two hosts in common: $output"
turn TESSERA_MAX_RESTARTS=many
expect "no number" 2
expect_text "no number" "TESSERA_MAX_RESTARTS is 'many'"
# The pauses double.
new_run
turn "${bad[@]}" TESSERA_RESTART_PAUSE=1
expect_text "first pause" "restart 1 of at most 3, in 1 s"
turn "${bad[@]}" TESSERA_RESTART_PAUSE=1
expect_text "second pause" "restart 2 of at most 3, in 2 s"

# A node that failed twice is left out, if enough others are there and the job does not ask for it.
new_run
bad=(CODE=137 OUTCOME=failed/lost_rank BAD_HOST='"n2"')
turn "${bad[@]}"
[[ $calls != *update* ]] || fail "left out at the first failure: $calls"
turn "${bad[@]}"
expect_call "left out" "scontrol update JobId=7 ExcNodeList=n2"
turn "${bad[@]}" EXCLUDED=n9
expect_call "left out with others" "scontrol update JobId=7 ExcNodeList=n9,n2"
new_run
turn "${bad[@]}" SLURM_JOB_NUM_NODES=3
turn "${bad[@]}" SLURM_JOB_NUM_NODES=3
[[ $calls != *update* ]] || fail "too few nodes left: $calls"
turn "${bad[@]}" SLURM_JOB_NUM_NODES=3 FOURTH=4
expect_call "enough nodes" "scontrol update JobId=7 ExcNodeList=n2"

# Where the run says nothing, srun does. A 137 of ranks that were ended hides a 2, and the host is that of the first.
new_run
turn CODE=137 MESSAGES='srun: error: n2: tasks 2-3: Exited with exit code 2\nsrun: error: n1: tasks 0-1: Killed'
expect "a hidden 2" 2
new_run
for restart in 0 1; do
  turn CODE=137 MESSAGES='srun: error: n2: task 3: Killed\nsrun: error: n1: tasks 0-1: Terminated'
done
expect_text "killed" "failed with exit code 137, host n2, rank 3"
expect_call "killed twice" "scontrol update JobId=7 ExcNodeList=n2"
new_run
turn CODE=127 MESSAGES='srun: error: n2: tasks 2-3: Exited with exit code 127\nsrun: error: n1: tasks 0-1: Exited with exit code 127'
[[ $output != *'host n2'* ]] || fail "two hosts failed alike, and one is blamed: $output"
turn CODE=1 MESSAGES='srun: error: n2: task 2: Exited with exit code 1\nsrun: error: n1: tasks 0-1: Killed'
[[ $output != *'host n'* ]] || fail "an error that a rank has told is its host's: $output"
turn CODE=1 MESSAGES='srun: error: Node failure on n1'
expect_text "node failure" "host n1"

turn CODE=143 MESSAGES='srun: error: n1: task 0: Exited with exit code 1\nsrun: error: n2: tasks 2-3: Terminated' \
  TESSERA_MAX_RESTARTS=0
expect "the first failure's code" 1

turn CODE=143 MESSAGES='srun: error: n1: task 0: Exited with exit code 4\nsrun: error: n2: tasks 2-3: Terminated'
expect "a hidden 4" 4
# Slurm has started the job anew, without this node, which was cut off: this script has no say any more.
for way in CODE=1 CODE=143 "CODE=3 ASKED=yes" "DEAF=yes LEFT=0:10 CANCELLED=yes CODE=3"; do
  # shellcheck disable=SC2086  # words
  turn TURN=1 $way
  [[ $calls != *requeue* ]] || fail "$way of an earlier turn: $calls"
done

# An outcome of another job, of another turn, or of an earlier start is not this start's.
new_run
turn CODE=1 OUTCOME=user_error/ OUTCOME_JOB='"8"'
expect "another job's outcome" requeue
turn CODE=1 OUTCOME=user_error/ OUTCOME_JOB='"7"' OUTCOME_RESTART=1 SLURM_RESTART_COUNT=2
expect "another turn's outcome" requeue
new_run
turn CODE=2 OUTCOME=user_error/ OUTCOME_JOB='"7"'
turn CODE=137
expect "an earlier start's outcome" requeue

# Files of PMIx in the way: once more in the same allocation.
new_run
turn BEGUN=no CODE=137 AGAIN_CODE=0
expect "once more" 0
[[ $(grep -c '^srun' <<<"$calls") == 2 ]] || fail "once more: $calls"
new_run
turn BEGUN=no CODE=137
expect "once more in vain" requeue
[[ $(grep -c '^srun' <<<"$calls") == 2 ]] || fail "once more in vain: $calls"
# A node where it fails both times is left out at once.
new_run
turn BEGUN=no CODE=127 MESSAGES='srun: error: n2: tasks 2-3: Exited with exit code 127'
expect "a program that cannot start" requeue
expect_call "a program that cannot start" "scontrol update JobId=7 ExcNodeList=n2"
expect_text "a program that cannot start" "restart 1 of at most 3"
turn BEGUN=no CODE=2
[[ $(grep -c '^srun' <<<"$calls") == 1 ]] || fail "a wrong input is started twice: $calls"
# The program cannot run on this node.
new_run
turn SHOW_CODE=127
expect "cannot run" requeue
expect_text "cannot run" "host $(hostname)"
[[ $calls != *srun* ]] || fail "cannot run: ranks were started: $calls"
rm -rf "$work/logs"

# An array: each task is put back alone, and its number is in the arguments.
new_run
job=11_3 arguments=(c-%a.yaml --set 'run.dir=runs/%a')
turn SLURM_JOB_ID=11 SLURM_ARRAY_JOB_ID=11 SLURM_ARRAY_TASK_ID=3 CODE=3 OUTCOME=stopped/request OUTCOME_JOB='"11_3"' ASKED=yes
expect_call "array" "scontrol requeue 11_3"
[[ $calls == *"train c-3.yaml --set run.dir=runs/3"* ]] || fail "array: $calls"
unset job
arguments=(c.yaml)

# Names that YAML puts in quotes.
turn RUN_TEXT="\"$work/submitted/run\""
expect "a quoted run folder" 0
[[ -z $(jobs -r) ]] || fail "something still runs: $(jobs -r)"

((failures == 0)) || exit 1
echo "batch script: all as expected"
