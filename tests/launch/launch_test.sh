#!/usr/bin/env bash
# Tests launch/run_local.sh, launch/mpirun.sh and launch/env.sh with the real mpirun; batch_test.sh tests what runs under
# Slurm. In place of tessera runs a script that reports how it was started. Prints each failure; exit code 1 if any.
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

# Other machines are launch/mpirun.sh's: refused instead of waiting for them for ever.
printf '# a comment\n\n%s slots=2\nn7 slots=2\n' "$HOSTNAME" >"$work/hosts"
for hosts in "--hostfile $work/hosts" "-H $HOSTNAME:2,n7:2" "--host n7"; do
  run env MPIRUN_ARGS="$hosts" "$local_run" c.yaml -n 4
  expect_code "$hosts" 2
  expect_text "$hosts" "names n7, another machine; launch/mpirun.sh"
done
run env MPIRUN_ARGS="--host $HOSTNAME:2" "$local_run" c.yaml -n 2
expect_code "this host by name" 0
run env MPIRUN_ARGS="--hostfile $work/none" "$local_run" c.yaml -n 2
expect_code "no host file" 2
run env SLURM_JOB_NUM_NODES=2 "$local_run" c.yaml -n 2
expect_code "several nodes of Slurm" 2
expect_text "several nodes of Slurm" "launch/train.sbatch"

# launch/mpirun.sh: its file of machines (L20), where ranks go, and what reaches them.
several=$root/launch/mpirun.sh
# shellcheck disable=SC2059  # the first argument is a format
hosts_file() { printf "$@" >"$work/hosts"; }
plan() { run env TESSERA_NETWORK=none "$several" c.yaml --hosts "$work/hosts" --dry-run "$@"; }
hosts_file '# c\n\n  a slots=2\r\nb slots=1 # the small one\r\nc-1'
plan
expect_code "hosts" 0
expect_text "hosts" $'a: ranks 0 to 1\nb: ranks 2 to 2\nc-1: ranks 3 to 3\nmpirun '
expect_text "hosts" " -n 4 "
plan -n 3 -x FOO=1 --set a.b=1
expect_text "fewer ranks" $'b: ranks 2 to 2\nmpirun '
expect_text "a variable and an argument" " -x FOO=1 $TESSERA_BIN train c.yaml --set a.b=1"
expect_text "OMP_NUM_THREADS" " -x OMP_NUM_THREADS "
plan -n 5
expect_code "too many ranks" 2
expect_text "too many ranks" "-n 5: $work/hosts has 4 slots"
wrong_hosts() {
  hosts_file "$2"
  plan
  expect_code "$1" 2
  expect_text "$1" "$work/hosts:$3"
}
wrong_hosts "slots that are no number" 'a slots=1\nb slots=x\n' "2: 'slots=x'"
wrong_hosts "no slots" 'a slots=0\n' "1: 'slots=0'"
wrong_hosts "other words" '# c\na slots=1 max_slots=2\n' "2: 'max_slots=2'"
wrong_hosts "twice" 'a\n\na slots=2\n' "3: a is there already, in line 1"
wrong_hosts "an odd name" 'a;b\n' "1: "
hosts_file '# nothing\n'
plan
expect_code "no machine" 2
expect_text "no machine" "names no machine"
# A machine that does not answer is named before anything starts.
printf '#!/usr/bin/env bash\n[[ " $* " != *" far "* ]] || exit 255\n[[ " $* " != *" other "* ]] || exit 1\n' >"$work/agent"
chmod +x "$work/agent"
hosts_file 'near\nfar\nother\n'
run env -C "$work" TESSERA_NETWORK=none OMPI_MCA_plm_rsh_agent="$work/agent" "$several" c.yaml --hosts "$work/hosts"
expect_code "a machine that does not answer" 2
expect_text "a machine that does not answer" "far does not let this machine in"
expect_text "a machine without the program" "other does not see $work or $TESSERA_BIN"
# With this machine alone it runs as run_local.sh does.
hosts_file '%s slots=2\n' "$HOSTNAME"
run env -C "$work" OMPI_MCA_rmaps_base_oversubscribe=1 TESSERA_NETWORK=none "$several" c.yaml --hosts "$work/hosts" -x FOO=1
expect_code "this machine alone" 0
for rank in 0 1; do expect_text "this machine alone" "rank $rank threads 1 foo 1 arguments train c.yaml"; done
[[ -z $(compgen -G "$work/.tessera-*") ]] || fail "mpirun.sh left files: $(compgen -G "$work/.tessera-*")"

# launch/env.sh: what is set stays, and networks are computed right.
run env OMPI_MCA_btl_tcp_if_include=ib0 NCCL_DEBUG=INFO bash -c "
  source '$root/launch/env.sh'
  TESSERA_NETWORK=10.77.0.0/24 choose_network
  echo \"\$OMPI_MCA_btl_tcp_if_include \$OMPI_MCA_oob_tcp_if_include \$NCCL_DEBUG\"
  network_of 10.77.130.11/18; network_of 192.168.5.9/32; network_of 10.1.2.3/8"
[[ $output == $'ib0 10.77.0.0/24 INFO\n10.77.128.0/18\n192.168.5.9/32\n10.0.0.0/8' ]] || fail "env.sh: $output"

# How many compilers run side by side has nothing to do with the threads of a rank.
run bash -c "source '$root/launch/lib.sh'; cores"
available=$output
run env OMP_NUM_THREADS=$((available + 3)) bash -c "source '$root/launch/lib.sh'; cores"
[[ $output == "$available" ]] || fail "cores: $output with OMP_NUM_THREADS set, $available without"

((failures == 0)) || exit 1
echo "launch scripts: all as expected"
