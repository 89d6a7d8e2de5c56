# The cases of run.sh; sourced, not run. A case has a slot of the cluster for itself: its nodes $a, $b and $c, of which a
# job gets the first two, and partitions. It says what it has found by note() and fail().
# shellcheck shell=bash
# shellcheck disable=SC2154,SC2034  # $a, $b, $c, $slot, $partition come from run.sh; $variables goes to submit()
# shellcheck disable=SC2317         # called by name

short_cases=(usr1 preempt_grace kill9 power mistake)
all_cases=(broken_node preempt preempt_grace time_limit usr1 kill9 stopped power power_of_head cut_off fenced no_slurmd
  array reboot crash_loop mistake scancel chain elastic mpirun ssh)

# The second reference, for what takes Slurm most of a minute to notice.
readonly long_steps=1500

note() { printf '%s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*"; }
same() { [[ $2 == "$3" ]] || fail "$1: $2, not $3"; }

# ends JOB STATE EXIT RESTARTS: waits for it.
ends() {
  local job=$1
  until_true 900 ended "$job" || fail "job $job has not ended: $(job_field "$job" JobState), $(job_field "$job" Reason)"
  note "job $job: $(job_field "$job" JobState) $(job_field "$job" ExitCode), $(job_field "$job" Restarts) requeues"
  same "state" "$(job_field "$job" JobState)" "$2"
  same "exit code" "$(job_field "$job" ExitCode)" "$3"
  same "requeues" "$(job_field "$job" Restarts)" "$4"
}
# whole RUN [REFERENCE]: its lines are those of the unbroken run, bit for bit.
whole() {
  local reference=${2:-unbroken}
  if diff <(curve "$1") <(curve "$reference") >"$work/$1.difference"; then
    note "trace: equal bit for bit"
  else
    fail "the trace is not the unbroken run's: $(head -n 4 "$work/$1.difference")"
  fi
}
# turn_ends JOB RUN: waits until a turn of a job is over, and says how many steps were lost.
turn_ends() {
  until_true 300 out_of_turn "$1" || fail "the turn of job $1 does not end"
  lost=$(($(last_step "$2") - $(saved_step "$2")))
  note "steps lost: $lost of $(last_step "$2")"
}
at_step() { until_true 240 reached "$2" "$3" || fail "$2 has not reached step $3: $(job_field "$1" JobState), $(tail -n 3 "$work/$2.log")"; }
# wrapper NAME CONDITION COMMAND: a program that does this to the ranks that fulfil the condition.
wrapper() {
  # shellcheck disable=SC2016  # $1 and $@ are the wrapper's
  printf '#!/usr/bin/env bash\nif [[ $1 == train ]] && %s; then %s; fi\nexec %s "$@"\n' "$2" "$3" "$program" >"$work/$1"
  chmod 755 "$work/$1"
  printf '%s\n' "$work/$1"
}

# The program cannot run on one of the nodes: left out after two starts.
case_broken_node() {
  local job
  variables="TESSERA_BIN=$(wrapper broken "[[ \$(hostname) == $b ]]" 'exit 127')"
  job=$(submit broken_node "")
  ends "$job" COMPLETED 0:0 1
  [[ $(job_field "$job" ExcNodeList) == *"$b"* ]] || fail "$b is not left out: $(job_field "$job" ExcNodeList)"
  whole broken_node
}

# A job of more weight takes the nodes; with a minute of grace, and without.
make_room() {
  local job
  partition=$2
  job=$(submit "$1" "")
  at_step "$job" "$1" 30
  in_work sbatch --parsable -p "u$slot" --exclusive -N2 -w "$a,$b" --time=1 -o "$1.urgent" --wrap 'sleep 5' >/dev/null
  turn_ends "$job" "$1"
  same "steps lost" "$lost" 0
  ends "$job" COMPLETED 0:0 1
  whole "$1"
}
case_preempt() { make_room preempt "b$slot"; }
case_preempt_grace() { make_room preempt_grace "g$slot"; }

case_time_limit() {
  local job restarts
  # Slurm's signal may come up to a minute early, and the script asks a minute before the limit by itself.
  job=$(submit time_limit "--time=2 --signal=B:USR1@30" --set "training.steps=$long_steps")
  at_step "$job" time_limit 1
  turn_ends "$job" time_limit
  same "steps lost" "$lost" 0
  until_true 1200 ended "$job"
  restarts=$(job_field "$job" Restarts)
  ((restarts >= 1)) || fail "it was not requeued"
  ends "$job" COMPLETED 0:0 "$restarts"
  whole time_limit long
}

# few_running JOB ...: at most three of them, so that each still comes into its steps before it is asked.
few_running() {
  local job n=0
  for job in "$@"; do ! running "$job" || n=$((n + 1)); done
  ((n <= 3))
}
# The batch shell is asked at random moments, from its first millisecond on.
case_usr1() {
  local i job jobs=() delay restarts
  for ((i = 1; i <= ${moments:-20}; i++)); do
    until_true 300 few_running "${jobs[@]}"
    job=$(submit "usr1-$i" "")
    jobs+=("$job")
    (
      until_true 120 running "$job"
      # A quarter of them before the ranks have begun.
      delay=$((i % 4 == 1 ? RANDOM % 500 : RANDOM % 15000))
      sleep "$(printf '%d.%03d' $((delay / 1000)) $((delay % 1000)))"
      "$cluster" admin scancel -b -s USR1 "$job" 2>/dev/null
      note "job $job: asked after $delay ms"
      turn_ends "$job" "usr1-$i"
      same "steps lost" "$lost" 0
    ) &
    until_true 60 running "$job"
  done
  wait
  for i in "${!jobs[@]}"; do
    until_true 900 ended "${jobs[i]}"
    restarts=$(job_field "${jobs[i]}" Restarts)
    # None where it was done before it was asked.
    ((restarts <= 1)) || fail "$restarts requeues"
    ends "${jobs[i]}" COMPLETED 0:0 "$restarts"
    whole "usr1-$((i + 1))"
  done
}

case_kill9() {
  local job
  job=$(submit kill9 "")
  at_step "$job" kill9 50
  kill -KILL "$(pid_of_rank "$job" 3)"
  turn_ends "$job" kill9
  ends "$job" COMPLETED 0:0 1
  whole kill9
}

# A rank that does not move any more.
case_stopped() {
  local job
  job=$(submit stopped "")
  at_step "$job" stopped 50
  kill -STOP "$(pid_of_rank "$job" 2)"
  turn_ends "$job" stopped
  ends "$job" COMPLETED 0:0 1
  whole stopped
}

case_power() {
  local job
  job=$(submit power "")
  at_step "$job" power 50
  "$cluster" crash "$b"
  turn_ends "$job" power
  ends "$job" COMPLETED 0:0 1
  whole power
}

# The node where the batch script runs.
case_power_of_head() {
  local job
  job=$(submit power_of_head "")
  at_step "$job" power_of_head 50
  "$cluster" crash "$a"
  turn_ends "$job" power_of_head
  ends "$job" COMPLETED 0:0 1
  whole power_of_head
}

case_cut_off() {
  local job
  job=$(submit cut_off "")
  at_step "$job" cut_off 50
  "$cluster" cut "$b"
  turn_ends "$job" cut_off
  "$cluster" join "$b"
  ends "$job" COMPLETED 0:0 1
  whole cut_off
}

# The node of rank 0 and of the batch script is cut off and lives on, longer than Slurm waits: the next turn takes its
# place, and what comes back has nothing to say any more.
case_fenced() {
  local job
  job=$(submit fenced "" --set communication.timeout=600)
  at_step "$job" fenced 50
  "$cluster" cut "$a"
  turn_ends "$job" fenced
  until_true 300 in_turn "$job" 1 || fail "no second turn"
  at_step "$job" fenced 100
  "$cluster" join "$a"
  ends "$job" COMPLETED 0:0 1
  whole fenced
}

case_no_slurmd() {
  local job
  job=$(submit no_slurmd "" --set "training.steps=$long_steps")
  at_step "$job" no_slurmd 50
  "$cluster" deaf "$b"
  turn_ends "$job" no_slurmd
  ends "$job" COMPLETED 0:0 1
  whole no_slurmd long
  "$cluster" crash "$b"
}

# One task of an array is asked; the other does not hear of it.
case_array() {
  local job
  job=$(submit array-%a --array=1-2)
  until_true 60 running "${job}_1" && at_step "${job}_1" array-1 30
  "$cluster" admin scancel -b -s USR1 "${job}_1"
  turn_ends "${job}_1" array-1
  ends "${job}_1" COMPLETED 0:0 1
  ends "${job}_2" COMPLETED 0:0 0
  whole array-1
  whole array-2
}

# A node loses power and is back before the job is, with the files of PMIx on its disk.
case_reboot() {
  local job
  job=$(submit reboot "")
  at_step "$job" reboot 50
  "$cluster" crash "$b"
  KEEP_SPOOL=1 "$cluster" boot "$b"
  turn_ends "$job" reboot
  ends "$job" COMPLETED 0:0 1
  note "starts in one allocation: $(grep -c 'once more in this allocation' "$work/reboot.log") repeated"
  whole reboot
}

case_crash_loop() {
  local job
  # shellcheck disable=SC2016  # expanded in the rank
  variables="TESSERA_MAX_RESTARTS=1 TESSERA_BIN=$(wrapper crashing '[[ $SLURM_PROCID == 3 ]]' 'exit 1')"
  job=$(submit crash_loop "")
  ends "$job" FAILED 1:0 1
  grep -q 'giving up after 2 starts in a row.*in common: .*exit code 1' "$work/crash_loop.log" ||
    fail "it does not say why it gives up: $(tail -n 3 "$work/crash_loop.log")"
}

case_mistake() {
  local job
  job=$(submit mistake "" --set training.stepz=3)
  ends "$job" FAILED 2:0 0
  same "lines that say it" "$(grep -c 'training.stepz' "$work/mistake.log")" 1
  case_scancel
}

case_scancel() {
  local job
  job=$(submit scancel "")
  at_step "$job" scancel 30
  "$cluster" admin scancel "$job"
  until_true 60 ended "$job"
  until_true 60 no_ranks "$job" || fail "ranks are still there: $(ranks "$job")"
  same "state" "$(job_field "$job" JobState)" CANCELLED
  same "requeues" "$(job_field "$job" Restarts)" 0
  same "the step that is saved" "$(saved_step scancel)" "$(last_step scancel)"
}

# The second job begins when the first has ended well, by training.stop_after.
case_chain() {
  local first second
  first=$(submit chain "" --set training.stop_after=100)
  second=$(submit chain "--dependency=afterok:$first")
  ends "$first" COMPLETED 0:0 0
  same "saved by the first" "$(saved_step chain)" 100
  ends "$second" COMPLETED 0:0 0
  whole chain
}

# One node, since the others are taken; then two. The same samples, and the same curve up to rounding.
case_elastic() {
  local job
  in_work sbatch --parsable -p "u$slot" --exclusive -N2 -w "$b,$c" --time=1 -o elastic.other --wrap 'sleep 40' >/dev/null
  sleep 3
  job=$(submit elastic --nodes=1-2)
  at_step "$job" elastic 30
  same "nodes at first" "$(job_field "$job" NumNodes)" 1
  "$cluster" admin scancel -b -s USR1 "$job"
  turn_ends "$job" elastic
  same "steps lost" "$lost" 0
  until_true 300 in_turn "$job" 1
  same "nodes later" "$(job_field "$job" NumNodes)" 2
  ends "$job" COMPLETED 0:0 1
  paste -d ' ' <(curve elastic | grep -o '"loss":[^,]*' | cut -d : -f 2) <(curve unbroken | grep -o '"loss":[^,]*' | cut -d : -f 2) |
    awk 'NF != 2 {exit 1} {d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > most) most = d}
      END {printf "trace: to %.1e of the unbroken run\n", most; exit !(NR > 0 && most <= 1e-5)}' ||
    fail "the trace is not the unbroken run's to 1e-5"
}

# Where srun has no PMIx: Open MPI's own launcher inside the job.
case_mpirun() {
  local job
  variables="TESSERA_LAUNCHER=mpirun"
  job=$(submit mpirun "")
  at_step "$job" mpirun 30
  "$cluster" admin scancel -b -s USR1 "$job"
  turn_ends "$job" mpirun
  same "steps lost" "$lost" 0
  ends "$job" COMPLETED 0:0 1
  whole mpirun
}

# Without Slurm: mpirun over ssh. A request to stop reaches the ranks of both machines.
case_ssh() {
  local node code agent starter
  in_work mkdir -m 700 keys
  in_work ssh-keygen -q -t ed25519 -N '' -f keys/id
  in_work cp keys/id.pub keys/authorized
  ssh-keygen -q -t ed25519 -N '' -f "$work/host_key"
  printf '%s\n' "HostKey $work/host_key" "AuthorizedKeysFile $work/keys/authorized" "StrictModes no" "PidFile none" \
    >"$work/sshd_config"
  for node in $a $b; do
    "$cluster" on "$node" bash -c "mkdir -p /run/sshd && /usr/sbin/sshd -f $work/sshd_config"
  done
  printf '%s slots=2\n' "$a" "$b" >"$work/machines"
  agent="ssh -q -i $work/keys/id -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
  start_over_ssh() {
    "$cluster" user_on "$a" env -C "$work" "OMPI_MCA_plm_rsh_agent=$agent" "TESSERA_BIN=$program" \
      "$root/launch/mpirun.sh" tiny.yaml --hosts machines --set run.dir=runs/ssh >>"$work/ssh.log" 2>&1
  }
  start_over_ssh &
  starter=$!
  until_true 300 reached ssh 50 || fail "it has not reached step 50: $(tail -n 5 "$work/ssh.log")"
  "$cluster" on "$a" pkill -TERM -o -f launch/mpirun.sh
  wait "$starter"
  code=$?
  same "exit code" "$code" 3
  note "stopped: $(last_step ssh) steps, $(($(last_step ssh) - $(saved_step ssh))) lost"
  same "the step that is saved" "$(saved_step ssh)" "$(last_step ssh)"
  start_over_ssh
  same "exit code at the end" "$?" 0
  whole ssh
}
