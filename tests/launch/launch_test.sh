#!/usr/bin/env bash
# Tests launch/run_local.sh with the real mpirun and launch/train.sbatch with stand-ins of Slurm's commands.
# In place of tessera runs a script that reports how it was started. Prints each failure; exit code 1 if any.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
  printf 'FAILED: %s\n' "$*"
  failures=$((failures + 1))
}
# expect NAME WANTED: compares with what the last run() left.
expect_code() { [[ $code == "$2" ]] || fail "$1: exit code $code, not $2; output: $output"; }
expect_text() { [[ $output == *"$2"* ]] || fail "$1: no '$2' in: $output"; }
run() { output=$("$@" 2>&1) && code=0 || code=$?; }

cat >"$work/tessera" <<'EOF'
#!/usr/bin/env bash
echo "rank ${OMPI_COMM_WORLD_RANK:-none} threads $OMP_NUM_THREADS foo ${FOO:-unset} arguments $*"
if [[ " $* " == *" wait "* ]]; then
  touch "$STARTED.${OMPI_COMM_WORLD_RANK:-none}"
  for ((i = 0; i < 300; ++i)); do
    if [[ -e $TESSERA_LAUNCH_FOLDER/stop ]]; then sleep 1.5; echo saved; exit 3; fi
    sleep 0.1
  done
fi
if [[ " $* " == *" saving "* ]]; then  # at the second Ctrl-C
  touch "$TESSERA_LAUNCH_FOLDER/keep" "$STARTED.${OMPI_COMM_WORLD_RANK:-none}"
  for ((i = 0; i < 300; ++i)); do
    if [[ -e $TESSERA_LAUNCH_FOLDER/now ]]; then sleep 1; echo whole; exit 3; fi
    sleep 0.1
  done
fi
if [[ " $* " == *" killed "* && $OMPI_COMM_WORLD_RANK == 1 ]]; then kill -KILL $$; fi
if [[ " $* " == *" silent "* ]]; then exit 1; fi
echo "terminal ${TESSERA_TERMINAL:-none}"
exit "${CODE:-0}"
EOF
chmod +x "$work/tessera"
export TESSERA_BIN=$work/tessera STARTED=$work/started
unset OMP_NUM_THREADS
local_run=$root/launch/run_local.sh

# Every rank is started with the same arguments, and one rank without mpirun.
run "$local_run" c.yaml -n 3 --set a.b=1
expect_code "three ranks" 0
for rank in 0 1 2; do expect_text "three ranks" "rank $rank threads 1 foo unset arguments train c.yaml --set a.b=1"; done
run "$local_run" c.yaml -n 1 --set a.b=1
expect_text "one rank" "rank none threads 1 foo unset arguments train c.yaml --set a.b=1"

# tessera's exit codes come through.
for wanted in 1 2 3; do
  for ranks in 1 2; do
    CODE=$wanted run "$local_run" c.yaml -n "$ranks"
    expect_code "exit code of $ranks ranks" "$wanted"
  done
done

# L23: from an empty environment. L25: a variable for every rank.
run env -i PATH="$PATH" TESSERA_BIN="$TESSERA_BIN" "$local_run" c.yaml -n 2
expect_code "empty environment" 0
run env MPIRUN_ARGS='-x FOO=1' OMP_NUM_THREADS=2 "$local_run" c.yaml -n 2
for rank in 0 1; do expect_text "a variable for all" "rank $rank threads 2 foo 1"; done

# Wrong use.
run "$local_run" c.yaml
expect_code "no -n" 2
expect_text "no -n" "-n RANKS is missing"
run "$local_run" c.yaml -n 0
expect_code "-n 0" 2
run "$local_run" -n 2
expect_code "no configuration" 2
expect_text "no configuration" "a configuration is needed"
TESSERA_BIN=$work/none run "$local_run" c.yaml -n 2
expect_code "no binary" 2
expect_text "no binary" "$work/none is not there"

# What went wrong is on the screen: mpirun's own words, without those that only repeat an exit code.
run env MPIRUN_ARGS='--wdir /no/such/folder' "$local_run" c.yaml -n 2
expect_code "no such working folder" 1
expect_text "no such working folder" "Working directory: /no/such/folder"
expect_text "no such working folder" "mpirun could not start the ranks"
run env OMPI_MCA_plm=nosuch "$local_run" c.yaml -n 2
expect_code "no such launcher" 1
expect_text "no such launcher" "Component: nosuch"
run "$local_run" c.yaml -n 2 killed
expect_code "a rank is killed" 137
expect_text "a rank is killed" "mpirun noticed that process rank 1"
expect_text "a rank is killed" "a rank was ended by signal 9"
CODE=3 run "$local_run" c.yaml -n 2
[[ $output != *--- && $output != *Primary* ]] || fail "an exit code: mpirun's words are in: $output"
run "$local_run" c.yaml -n 2 silent
expect_code "silent" 1
expect_text "silent" "mpirun failed without a word"
# Progress bars are for a terminal of the person's.
run "$local_run" c.yaml -n 2
expect_text "no terminal" "terminal none"

# wait_for FILE: until a rank says that it runs, at most 20 s.
wait_for() {
  for ((i = 0; i < 200; ++i)); do [[ -e $1 ]] && return; sleep 0.1; done
  fail "$1 did not appear"
}

# The first SIGTERM (Ctrl-C sends SIGINT in the same way) asks every rank to save, and waits for it.
"$local_run" c.yaml -n 2 wait >"$work/output" 2>&1 &
job=$!
wait_for "$work/started.0"
wait_for "$work/started.1"
kill -TERM "$job"
wait "$job" && code=0 || code=$?
output=$(<"$work/output")
expect_code "stop" 3
[[ $(grep -c '^saved$' "$work/output") == 2 ]] || fail "stop: not both ranks saved: $output"

# The second Ctrl-C waits for a save that is being written.
rm "$work"/started.*
env --default-signal=INT "$local_run" c.yaml -n 2 saving >"$work/output" 2>&1 &
job=$!
wait_for "$work/started.0"
wait_for "$work/started.1"
kill -INT "$job"
sleep 0.6
kill -INT "$job"
wait "$job" && code=0 || code=$?
output=$(<"$work/output")
expect_code "second Ctrl-C in a save" 3
expect_text "second Ctrl-C in a save" whole

# The batch script: one launcher (L19), valid options (L28), exit codes, back into the queue after a save.
cat >"$work/srun" <<'EOF'
#!/usr/bin/env bash
echo "srun $*"
if [[ " $* " == *" wait "* ]]; then
  trap 'exit 3' USR1
  touch "$STARTED.srun"
  for ((i = 0; i < 300; ++i)); do sleep 0.1; done
fi
exit "${CODE:-0}"
EOF
printf '#!/usr/bin/env bash\necho "scontrol $*"\n' >"$work/scontrol"
chmod +x "$work/srun" "$work/scontrol"
export PATH=$work:$PATH SLURM_JOB_ID=7
batch=$root/launch/train.sbatch
run "$batch" c.yaml --set a.b=1
expect_code "batch" 0
[[ $output == "srun --mpi=pmix $TESSERA_BIN train c.yaml --set a.b=1" ]] || fail "batch: $output"
for option in nodes=2 ntasks-per-node=4 time=1:00:00 signal=B:USR1@120 requeue; do
  grep -q "^#SBATCH --$option\$" "$batch" || fail "batch: no #SBATCH --$option"
done
CODE=2 run "$batch" c.yaml
expect_code "batch, wrong input" 2
run "$batch"
expect_code "batch without a configuration" 2
"$batch" c.yaml wait >"$work/output" 2>&1 &
job=$!
wait_for "$work/started.srun"
kill -USR1 "$job"
wait "$job" && code=0 || code=$?
output=$(<"$work/output")
expect_code "batch, stopped" 0
expect_text "batch, stopped" "scontrol requeue 7"

# The request reached a rank before its first instruction: nothing had begun.
cat >"$work/srun" <<'EOF'
#!/usr/bin/env bash
touch "$STARTED.srun"
for ((i = 0; i < 300; ++i)); do sleep 0.1; done
EOF
rm "$STARTED.srun"
"$batch" c.yaml >"$work/output" 2>&1 &
job=$!
wait_for "$work/started.srun"
kill -USR1 "$job"
wait "$job" && code=0 || code=$?
output=$(<"$work/output")
expect_code "batch, before main" 0
expect_text "batch, before main" "scontrol requeue 7"
# The same end without a request is a failure.
printf '#!/usr/bin/env bash\nexit 138\n' >"$work/srun"
run "$batch" c.yaml
expect_code "batch, 138 unasked" 138

# How many compilers run side by side has nothing to do with the threads of a rank.
run bash -c "source '$root/launch/lib.sh'; cores"
available=$output
run env OMP_NUM_THREADS=$((available + 3)) bash -c "source '$root/launch/lib.sh'; cores"
[[ $output == "$available" ]] || fail "cores: $output with OMP_NUM_THREADS set, $available without"

((failures == 0)) || exit 1
echo "launch scripts: all as expected"
