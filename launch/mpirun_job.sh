# How launch/run_local.sh and launch/mpirun.sh start mpirun and wait for it; sourced by them, not run. They set
#   binary, config, rest   the program, its configuration and its other arguments
#   arguments              those of mpirun
#   folder_in              a folder that all ranks see, for the file by which they are asked to stop; empty: /tmp will do
#   left_over              files to be removed at the end
# and define tell(), which says something on stderr.
# shellcheck shell=bash
# shellcheck disable=SC2154  # what the sourcing script sets

# Signals of one process save and stop, and so must this script's. But Open MPI answers Ctrl-C, SIGTERM and
# SIGHUP by killing its ranks within a second, and what it passes on is lost while it or a rank is not ready.
# So mpirun runs in a session of its own, where the terminal's signals do not reach it, and a request reaches
# the ranks as a file in a folder that they look into between steps, however early it comes: `stop`. At the
# second Ctrl-C (`now`) mpirun ends the ranks, once no save is being written (`keep`).
asked=false at_once=false woken=false first_interrupt=0 folder=''
# shellcheck disable=SC2317  # called by traps
request() {
  woken=true
  if [[ $1 == INT ]]; then
    local uptime
    read -r uptime _ </proc/uptime
    uptime=$((10#${uptime/./}))  # in 1/100 s
    # What comes within half a second is the same press of Ctrl-C, on another way.
    if ((first_interrupt == 0)); then
      first_interrupt=$uptime
    elif ((uptime - first_interrupt >= 50)); then
      at_once=true
      [[ -z $folder ]] || : >"$folder/now"
    fi
  fi
  if $asked; then return 0; fi
  asked=true
  [[ -z $folder ]] || : >"$folder/stop"
  tell "asking for a save and a stop; Ctrl-C once more stops at once"
}
# Signals that were ignored when this script started (nohup, a job in the background) stay ignored.
requests=(INT TERM HUP USR1 USR2 XCPU)
for signal in "${requests[@]}"; do
  # shellcheck disable=SC2064  # expanded now
  trap "request $signal" "$signal"
done
trap 'rm -rf ${folder:+"$folder"} "${left_over[@]}"' EXIT
trap '' PIPE  # nobody reads what this script says: train on
# A signal to the group ends what runs here in the foreground too, before anything has begun to train.
stop_before_start() {
  tell "stopped before training began; start the same command to go on"
  exit 3
}
not_started() {
  if $asked; then stop_before_start; fi
  tell "error: $1"
  exit 1
}
folder=$(mktemp -d ${folder_in:+"$folder_in/.tessera-launch-XXXXXX"}) || not_started "no folder for temporary files could be made"
export TESSERA_LAUNCH_FOLDER=$folder

# mpirun gives its ranks a terminal whatever its own output is. They draw a progress bar if this is one.
if [[ -t 1 ]]; then export TESSERA_TERMINAL=1; fi
((EUID != 0)) || arguments+=(--allow-run-as-root)

# mpirun ends its ranks when its output cannot be written, so it writes to these two, which live as long as
# it does, whoever has stopped reading and whatever signal this script's group gets.
relay_output() {
  trap '' "${requests[@]}" PIPE
  : >"$folder/output.ready"
  exec <"$folder/output"
  cat 2>/dev/null || cat >/dev/null
}
# mpirun's words without those of a job that ended by an exit code of its own: ours is told by the rank.
relay_errors() {
  trap '' "${requests[@]}" PIPE
  : >"$folder/errors.ready"
  exec <"$folder/errors" >&2 2>/dev/null
  local line place=outside left=0 said=false
  while IFS= read -r line || [[ -n $line ]]; do
    case $place:$line in
      outside:--------------------*)
        place=block
        continue  # its next line says which it is
        ;;
      block:'Primary job  terminated normally'* | block:'mpirun detected that one or more processes exited'* | \
        block:'MPI_ABORT was invoked on rank'*)
        place=dropped left=15
        continue
        ;;
      block:*)
        printf '%s\n' '--------------------------------------------------------------------------' || true
        place=shown
        ;;
      dropped:error:*) place=outside ;;
      dropped:*)
        left=$((left - 1))
        [[ $line != --------------------* ]] && ((left > 0)) || place=outside
        continue
        ;;
      shown:--------------------*) place=outside ;;
      # Noise: a help message that mpirun lost, and a file descriptor that it closed too early.
      outside:*'sent help message help-mpi-api.txt / mpi-abort'* | outside:*'ORTE_ERROR_LOG'*'show_help.c'* | \
        outside:'[warn] Epoll MOD'*)
        continue
        ;;
    esac
    # What the end of this script needs to know: who was ended by a signal, and whether anybody said why.
    case $line in
      *'mpirun noticed that process rank'*) : >"$folder/rank-died" ;;
      *'processes failed to start'* | *'unable to launch the specified application'*) : >"$folder/not-started" ;;
    esac
    $said || { said=true && : >"$folder/said"; }
    printf '%s\n' "$line" || true
  done
}
mkfifo "$folder/output" "$folder/errors" || not_started "no pipe could be made in $folder"
relay_output &
relays=($!)
relay_errors &
relays+=($!)
# One that a signal to the group reaches in its first instructions is gone. Nothing was started then.
for name in output errors; do
  until [[ -e $folder/$name.ready ]]; do
    for relay in "${relays[@]}"; do
      kill -0 "$relay" 2>/dev/null || not_started "the process that passes on mpirun's output was ended"
    done
    sleep 0.01 || true
  done
done
if $asked; then stop_before_start; fi

# If this script is killed, mpirun goes with it.
setpriv --pdeathsig KILL setsid mpirun "${arguments[@]}" \
  "$binary" train "$config" "${rest[@]}" </dev/null >"$folder/output" 2>"$folder/errors" &
job=$!

code=0 ended=false
until $ended; do
  woken=false
  last=0
  wait "$job" || last=$?
  ((last == 127)) || code=$last  # 127: its code is known already
  $woken || ended=true
  if $at_once; then
    while [[ -e $folder/keep ]] && kill -0 "$job" 2>/dev/null; do sleep 0.1 || true; done
    kill -TERM "$job" 2>/dev/null || true
  fi
done
while kill -0 "${relays[@]}" 2>/dev/null; do wait "${relays[@]}" || true; done

if $at_once && ((code != 0 && code != 3)); then
  tell "stopped at once; start the same command to go on from the last checkpoint"
  code=130
elif ((code == 255)) || [[ -e $folder/not-started ]]; then
  tell "error: mpirun could not start the ranks"
  code=1
elif ((code > 128)); then
  who=mpirun
  [[ ! -e $folder/rank-died ]] || who='a rank'
  tell "$who was ended by signal $((code - 128)) ($(kill -l "$code" 2>/dev/null || echo unknown))"
elif ((code == 1)) && [[ ! -e $folder/said ]]; then
  tell "error: mpirun failed without a word (Open MPI 4.1 loses its reasons now and then); start again to see why"
fi
exit "$code"
