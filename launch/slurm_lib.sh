# Shared by launch/train.sbatch and its test (tests/launch/batch_test.sh); sourced, not run. What a batch script asks
# itself when a start has ended: how did it end, who failed, and what now.
# shellcheck shell=bash

tell() { printf 'train.sbatch: %s\n' "$*"; }

# json_field TEXT NAME: the value of a field of a JSON object, nothing for null or where there is none. Enough for the
# flat objects that the program writes; a batch host need not have jq or Python.
json_field() {
  local text="\"$2\"[[:space:]]*:[[:space:]]*\"(([^\"\\\\]|\\\\.)*)\""
  local other="\"$2\"[[:space:]]*:[[:space:]]*(-?[0-9]+|true|false)"
  if [[ $1 =~ $text ]]; then
    local value=${BASH_REMATCH[1]}
    value=${value//\\\"/\"} value=${value//\\n/ } value=${value//\\t/ } value=${value//\\\\/\\}
    printf '%s\n' "$value"
  elif [[ $1 =~ $other ]]; then
    printf '%s\n' "${BASH_REMATCH[1]}"
  fi
}

# run_folder CONFIGURATION: run.dir of what `tessera config show` has printed.
run_folder() {
  local dir
  dir=$(sed -n '/^run:/,/^[a-z]/s/^  dir: *//p' <<<"$1" | head -n 1)
  if [[ $dir == \"*\" ]]; then
    dir=${dir#\"} dir=${dir%\"}
    dir=${dir//\\\"/\"} dir=${dir//\\\\/\\}
  fi
  printf '%s\n' "$dir"
}

# newest_checkpoint RUN: the step of the newest whole checkpoint, 0 if there is none.
newest_checkpoint() {
  local manifest newest=0 step
  for manifest in "$1"/checkpoints/step-*/manifest.json; do
    step=${manifest%/manifest.json} step=${step##*/step-}
    [[ -e $manifest && $step =~ ^[0-9]+$ ]] || continue
    ((10#$step <= newest)) || newest=$((10#$step))
  done
  printf '%s\n' "$newest"
}

# traces RUN: changes as soon as a start owns the run folder.
traces() {
  stat -c '%n %s %y' "$1"/logs/starts "$1"/logs/outcome.json "$1"/metrics.jsonl 2>/dev/null
  newest_checkpoint "$1"
}

# own_outcome RUN BEFORE JOB RESTART: RUN/logs/outcome.json if this start has written it: it is not what stood there
# BEFORE, and names no other job or turn of it. (A node that was cut off may still write for an earlier turn.)
own_outcome() {
  local text job restart
  text=$(cat "$1/logs/outcome.json" 2>/dev/null)
  job=$(json_field "$text" job) restart=$(json_field "$text" restart)
  if [[ -z $text || $text == "$2" ]] || [[ ${job:-$3} != "$3" || ${restart:-$4} != "$4" ]]; then return; fi
  printf '%s\n' "$text"
}

# first_failure: reads the launcher's messages; prints 'HOST RANK CODE' of the first rank that failed, with a - for what
# is not known, and nothing where nobody failed. A rank that ended with 1 has said why, and that may be another's fault:
# no host is named. Nor is one where ranks of another host failed in the same way.
first_failure() {
  local line host rank code what found=''
  local task='srun: error: ([^ :]+): tasks? ([0-9]+)[^:]*: (.*)'
  local lost='srun: error: Node failure on ([^ ,]+)'
  local noticed='mpirun noticed that process rank ([0-9]+) with PID [0-9]+ on node ([^ ]+) exited on signal ([0-9]+)'
  while IFS= read -r line; do
    if [[ $line =~ $task ]]; then
      host=${BASH_REMATCH[1]} rank=${BASH_REMATCH[2]} what=${BASH_REMATCH[3]}
      case $what in
        'Exited with exit code '*) code=${what##* } ;;
        Killed*) code=137 ;;
        'Segmentation fault'*) code=139 ;;
        Aborted*) code=134 ;;
        'Bus error'*) code=135 ;;
        'Illegal instruction'*) code=132 ;;
        # What was ended on another's account, or asked to.
        Terminated* | 'User defined signal'*) continue ;;
        *) code=1 ;;
      esac
    elif [[ $line =~ $lost ]]; then
      host=${BASH_REMATCH[1]} rank=- code=-
    elif [[ $line =~ $noticed ]]; then
      host=${BASH_REMATCH[2]} rank=${BASH_REMATCH[1]} code=$((128 + BASH_REMATCH[3]))
    else
      continue
    fi
    if [[ $code == 1 ]]; then host=- rank=-; fi
    if [[ -z $found ]]; then
      found="$host $rank $code"
    elif [[ $host != "${found%% *}" && $code == "${found##* }" && $code != 137 ]]; then
      found="- - $code"
      break
    fi
  done
  [[ -z $found ]] || printf '%s\n' "$found"
}

# how_it_ended CODE OUTCOME ASKED: done, saved (stopped on request, nothing is lost), user_error, replaced or failed.
# CODE is the launcher's exit code: the highest of all ranks, so that of one that was killed hides the others. So the
# run's own outcome decides, and the code only where there is none.
how_it_ended() {
  local outcome
  outcome=$(json_field "$2" outcome)
  if [[ $outcome == stopped && $(json_field "$2" reason) == stop_after ]]; then outcome='done'; fi
  if [[ -z $outcome ]]; then
    case $1 in
      0) outcome='done' ;;
      2) outcome=user_error ;;
      3) outcome=stopped ;;
      4) outcome=replaced ;;
      # The request reached ranks before their first instruction, or the launcher as it was closing.
      138) if $3; then outcome=stopped; fi ;;
    esac
  fi
  case $outcome in
    done | user_error | replaced) printf '%s\n' "$outcome" ;;
    stopped) echo saved ;;
    *) echo failed ;;
  esac
}

# what_now ENDED WANTED IDLE MOST PROGRESS: 'requeue', 'retry' (requeue, but it counts and may pause) or 'end'.
#   WANTED    true if the job is to make room or its time is nearly up
#   IDLE      how many starts in a row, this one among them, have failed without a newer checkpoint
#   MOST      restarts after failures that are allowed while there is no newer checkpoint; 0: never any
#   PROGRESS  true if this start has made a newer checkpoint
what_now() {
  case $1 in
    saved) if $2; then echo requeue; else echo end; fi ;;
    failed)
      if (($4 > 0)) && { $5 || (($3 <= $4)); }; then echo retry; else echo end; fi ;;
    *) echo end ;;
  esac
}

# idle_starts FILE: how many of the last lines of a file of failures are of starts without a newer checkpoint. A line is
# 'PROGRESS checkpoint code host rank step cause', with tabs; PROGRESS is `again` for one that was tried once more at once.
idle_starts() {
  tac "$1" 2>/dev/null | awk -F '\t' '$1 == "true" {exit} $1 == "again" {next} at == "" {at = $2} $2 != at {exit} {++n} END {print n + 0}'
}

# in_common FILE COUNT: what the last COUNT lines of a file of failures share, as text; nothing if there is nothing.
in_common() {
  grep -v '^again' "$1" 2>/dev/null | tail -n "$2" | awk -F '\t' '
    {
      for (i = 2; i <= NF; ++i) {
        if (NR == 1) first[i] = $i
        else if ($i != first[i]) differs[i] = 1
      }
    }
    function shared(i) { return !(i in differs) && first[i] != "" && first[i] != "-" }
    END {
      if (shared(4)) text = text ", host " first[4]
      if (shared(5)) text = text ", rank " first[5]
      if (shared(6)) text = text ", after step " first[6]
      if (shared(3)) text = text ", exit code " first[3]
      if (shared(7)) text = text ", cause: " first[7]
      print substr(text, 3)
    }'
}

# failed_hosts FILE: the hosts that failed at least twice, one a line.
failed_hosts() {
  awk -F '\t' '$4 != "" && $4 != "-" && ++n[$4] == 2 {print $4}' "$1" 2>/dev/null
}

# seconds TIME: of Slurm's [days-][[hours:]minutes:]seconds; nothing where it is no time (UNLIMITED).
seconds() {
  local days=0 time=$1 part total=0
  [[ $time =~ ^([0-9]+-)?[0-9]+(:[0-9]+)*$ ]] || return 0
  if [[ $time == *-* ]]; then days=${time%%-*} time=${time#*-}; fi
  for part in ${time//:/ }; do total=$((total * 60 + 10#$part)); done
  printf '%s\n' $((10#$days * 86400 + total))
}

# info_field INFO NAME: a value of what `scontrol show job` has printed.
info_field() { [[ " ${1//$'\n'/ } " =~ [[:space:]]$2=([^[:space:]]*) ]] && printf '%s\n' "${BASH_REMATCH[1]}"; }

# was_preempted INFO: Slurm has asked this turn of the job to make room. The time stays from one turn to the next, so it
# must not be older than the start.
was_preempted() {
  local when start
  when=$(info_field "$1" PreemptTime) start=$(info_field "$1" StartTime)
  [[ $when == [0-9]* && ! $when < $start ]]
}
