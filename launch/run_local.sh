#!/usr/bin/env bash
# Trains on this machine: one process a rank, started by mpirun; a single rank needs no mpirun.
#
#   launch/run_local.sh CONFIG -n RANKS [arguments of tessera train, such as --set a.b=value]
#
#   launch/run_local.sh configs/quickstart.yaml -n 4
#   launch/run_local.sh configs/quickstart.yaml -n 2 --set parallel.tp=1
#
# OMP_NUM_THREADS (default 1) is the number of threads of each rank; TESSERA_BIN names another binary;
# MPIRUN_ARGS adds arguments to mpirun, such as '-x FOO=1' to set a variable in every rank. Press Ctrl-C
# once to save and stop. The exit code is tessera's: 0 done, 1 failed, 2 the input is wrong, 3 stopped on
# request after a save.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() { sed -n '2,14s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
die() {
  printf 'run_local.sh: error: %s\n' "$*" >&2
  exit 2
}

config='' ranks='' rest=()
while (($# > 0)); do
  case $1 in
    -h | --help) usage; exit 0 ;;
    -n)
      (($# >= 2)) || die "-n needs the number of ranks"
      ranks=$2
      shift
      ;;
    *) if [[ -z $config && $1 != -* ]]; then config=$1; else rest+=("$1"); fi ;;
  esac
  shift
done
[[ -n $config ]] || die "a configuration is needed, such as configs/quickstart.yaml (--help says more)"
[[ $ranks =~ ^[1-9][0-9]*$ ]] || die "-n '${ranks}': the number of ranks must be 1 or more"
binary=${TESSERA_BIN:-$root/build/release/tessera}
[[ -x $binary ]] || die "$binary is not there; launch/quickstart.sh or tests/run.sh builds it"

export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
# One machine: Open MPI need not look for networks, which takes it a quarter of a second.
export OMPI_MCA_pml=${OMPI_MCA_pml:-ob1} OMPI_MCA_btl=${OMPI_MCA_btl:-self,vader}
# mpirun gives its ranks a terminal even where this script has none; a dumb one gets no progress bar.
[[ -t 1 ]] || export TERM=dumb
if ((ranks == 1)); then exec "$binary" train "$config" "${rest[@]}"; fi

# More ranks than cores are allowed; without --bind-to none Open MPI ties ranks to the same core.
arguments=(--quiet --oversubscribe --bind-to none -n "$ranks")
((EUID != 0)) || arguments+=(--allow-run-as-root)
read -ra extra <<<"${MPIRUN_ARGS:-}"

# Ctrl-C makes mpirun kill its ranks within a second, too soon to save. So mpirun runs in a session of
# its own, where the terminal's Ctrl-C does not reach it, and the first Ctrl-C (or SIGTERM) goes to the
# ranks as SIGUSR1, which asks them to save and stop. If this script is killed, mpirun goes with it.
setpriv --pdeathsig KILL setsid mpirun "${arguments[@]}" "${extra[@]}" \
  "$binary" train "$config" "${rest[@]}" </dev/null &
job=$!
# shellcheck disable=SC2317  # called by traps
stop_at_once() { kill -TERM "$job" 2>/dev/null || true; }
# shellcheck disable=SC2317
save_and_stop() {
  trap stop_at_once INT TERM
  printf '\nrun_local.sh: asking for a save and a stop; once more stops at once\n' >&2
  kill -USR1 "$job" 2>/dev/null || true
}
trap save_and_stop INT TERM
trap 'kill -USR1 "$job" 2>/dev/null || true' USR1

code=0
while kill -0 "$job" 2>/dev/null; do
  code=0
  wait "$job" || code=$?
done
# A signal that came last may have hidden the job's own exit code.
last=0
wait "$job" 2>/dev/null || last=$?
((last == 127)) || code=$last
((code <= 128)) || printf 'run_local.sh: a rank was ended by signal %d\n' $((code - 128)) >&2
exit "$code"
