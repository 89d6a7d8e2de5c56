#!/usr/bin/env bash
# Trains on this machine: one process a rank, started by mpirun; a single rank needs no mpirun.
#
#   launch/run_local.sh CONFIG -n RANKS [arguments of tessera train, such as --set a.b=value]
#
#   launch/run_local.sh configs/quickstart.yaml -n 4
#   launch/run_local.sh configs/quickstart.yaml -n 2 --set parallel.tp=1
#
# For several machines there are launch/mpirun.sh (by ssh) and launch/train.sbatch (under Slurm).
#
# OMP_NUM_THREADS (default 1) is the number of threads of each rank; TESSERA_BIN names another binary;
# MPIRUN_ARGS adds arguments to mpirun, such as '-x FOO=1' to set a variable in every rank. Press Ctrl-C
# once to save and stop. The exit code is tessera's: 0 done, 1 failed, 2 the input is wrong, 3 stopped on
# request with nothing lost. docs/signals.md says what each signal does.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() { sed -n '2,16s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
tell() { printf 'run_local.sh: %s\n' "$*" >&2 || true; }
die() {
  tell "error: $*"
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
[[ -n $ranks ]] || die "-n RANKS is missing: the number of processes, such as -n 2"
[[ $ranks =~ ^[1-9][0-9]*$ ]] || die "-n '${ranks}': the number of ranks must be 1 or more"
binary=${TESSERA_BIN:-$root/build/release/tessera}
[[ -x $binary ]] || die "$binary is not there; launch/quickstart.sh or tests/run.sh builds it"

export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
if ((ranks == 1)); then exec "$binary" train "$config" "${rest[@]}"; fi


# Ranks that Open MPI put on other machines could not meet: what is chosen below is for one machine.
read -ra extra <<<"${MPIRUN_ARGS:-}"
for ((i = 0; i < ${#extra[@]}; i++)); do
  hosts=''
  case ${extra[i]} in
    --host | -host | -H) hosts=${extra[i + 1]:-} ;;
    --hostfile | -hostfile | --machinefile | -machinefile | --default-hostfile | -default-hostfile)
      [[ -r ${extra[i + 1]:-} ]] || die "MPIRUN_ARGS: the file ${extra[i + 1]:-} of ${extra[i]} cannot be read"
      hosts=$(sed 's/#.*//; s/\r$//' "${extra[i + 1]}" | awk 'NF {print $1}' | paste -sd ,)
      ;;
  esac
  for name in ${hosts//,/ }; do
    case ${name%%:*} in
      localhost | 127.* | "$HOSTNAME" | "${HOSTNAME%%.*}") ;;
      *) die "MPIRUN_ARGS: ${extra[i]} names ${name%%:*}, another machine; launch/mpirun.sh starts ranks on several" ;;
    esac
  done
done
if ((${SLURM_JOB_NUM_NODES:-1} > 1)); then
  die "this is a Slurm job of $SLURM_JOB_NUM_NODES nodes, and mpirun would use all of them; launch/train.sbatch is for that"
fi
# Open MPI need not look for networks, which takes it a quarter of a second.
export OMPI_MCA_pml=${OMPI_MCA_pml:-ob1} OMPI_MCA_btl=${OMPI_MCA_btl:-self,vader}
# More ranks than cores are allowed; without --bind-to none Open MPI ties ranks to the same core.
arguments=(--oversubscribe --bind-to none -n "$ranks" "${extra[@]}")
folder_in='' left_over=()
# shellcheck source=launch/mpirun_job.sh
source "$root/launch/mpirun_job.sh"
