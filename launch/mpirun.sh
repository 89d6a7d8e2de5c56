#!/usr/bin/env bash
# Trains on several machines without Slurm: one process a rank, started by mpirun over ssh.
#
#   launch/mpirun.sh CONFIG --hosts FILE [-n RANKS] [-x NAME[=VALUE] ...] [--dry-run] [arguments of tessera train]
#
#   launch/mpirun.sh configs/llama3-8b.yaml --hosts hosts -x NCCL_DEBUG=INFO
#
# FILE holds a machine a line, `name slots=N`, in the order in which ranks are numbered: the first N ranks run on the
# first machine, and so on, so that a tp group that divides N lies in one machine. Without slots= it is one rank. What
# follows a # is a comment. -n RANKS takes fewer than all slots.
#
# Each machine must let this one in by ssh without a password, and see this folder, the program and the run folder under
# the same paths. That is tried before anything is started. The ranks get the working folder and these variables:
# PATH, LD_LIBRARY_PATH, OMP_NUM_THREADS (default 1), those that begin with NCCL_, UCX_, TESSERA_ or OMPI_MCA_, and what
# -x names. launch/env.sh says which settings of MPI and NCCL are made. --dry-run prints where ranks would run, and the
# command. TESSERA_BIN, Ctrl-C and the exit codes are as with launch/run_local.sh.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() { sed -n '2,17s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
tell() { printf 'mpirun.sh: %s\n' "$*" >&2 || true; }
die() {
  tell "error: $*"
  exit 2
}

config='' file='' ranks='' dry_run=false rest=() variables=()
while (($# > 0)); do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --hosts | -n | -x)
      (($# >= 2)) || die "$1 needs a value (--help says more)"
      case $1 in
        --hosts) file=$2 ;;
        -n) ranks=$2 ;;
        -x) variables+=("$2") ;;
      esac
      shift
      ;;
    --dry-run) dry_run=true ;;
    *) if [[ -z $config && $1 != -* ]]; then config=$1; else rest+=("$1"); fi ;;
  esac
  shift
done
[[ -n $config ]] || die "a configuration is needed, such as configs/quickstart.yaml (--help says more)"
[[ -n $file ]] || die "--hosts FILE is missing: a machine a line, 'name slots=N'"
[[ -r $file ]] || die "--hosts $file: the file cannot be read"
[[ -z $ranks || $ranks =~ ^[1-9][0-9]{0,6}$ ]] || die "-n '$ranks': the number of ranks must be 1 or more"

# The machines and their slots, in the file's order.
hosts=() slots=() total=0
read_hosts() {
  local line number=0 host words word count
  local -A seen=()
  while IFS= read -r line || [[ -n $line ]]; do
    number=$((number + 1))
    line=${line%$'\r'}
    read -ra words <<<"${line%%#*}"
    ((${#words[@]} > 0)) || continue
    host=${words[0]} count=1
    [[ $host =~ ^[A-Za-z0-9._:-]+$ && $host != -* ]] || die "$file:$number: '$host' is no name or address of a machine"
    [[ -z ${seen[$host]:-} ]] ||
      die "$file:$number: $host is there already, in line ${seen[$host]}; name each machine once, with all its slots"
    seen[$host]=$number
    for word in "${words[@]:1}"; do
      [[ $word == slots=* ]] || die "$file:$number: '$word'; after the machine's name only slots=N may follow"
      count=${word#slots=}
      [[ $count =~ ^[1-9][0-9]{0,4}$ ]] || die "$file:$number: '$word'; slots must be a number from 1 to 99999"
    done
    hosts+=("$host") slots+=("$count")
    total=$((total + count))
  done <"$file"
  ((total > 0)) || die "$file: names no machine"
}
read_hosts
ranks=${ranks:-$total}
((ranks <= total)) || die "-n $ranks: $file has $total slots"

binary=${TESSERA_BIN:-$root/build/release/tessera}
[[ $binary == /* ]] || binary=$PWD/$binary
[[ -x $binary ]] || die "$binary is not there; launch/quickstart.sh or tests/run.sh builds it"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
TESSERA_HOSTS=${hosts[*]}
# shellcheck source=launch/env.sh
source "$root/launch/env.sh"

# Without --bind-to none Open MPI ties each rank to one core, whatever OMP_NUM_THREADS is.
arguments=(--map-by slot --bind-to none -n "$ranks" --wdir "$PWD")
for name in PATH LD_LIBRARY_PATH OMP_NUM_THREADS "${!NCCL_@}" "${!UCX_@}" "${!TESSERA_@}"; do
  [[ -z ${!name:-} || $name == TESSERA_HOSTS ]] || arguments+=(-x "$name")
done
for name in "${variables[@]}"; do arguments+=(-x "$name"); done

if $dry_run; then
  left=$ranks
  for ((i = 0; i < ${#hosts[@]} && left > 0; i++)); do
    here=$((slots[i] < left ? slots[i] : left))
    printf '%s: ranks %d to %d\n' "${hosts[i]}" $((ranks - left)) $((ranks - left + here - 1))
    left=$((left - here))
  done
  printf '%q ' mpirun "${arguments[@]}" "$binary" train "$config" "${rest[@]}"
  printf '\n'
  exit 0
fi

# Said here by name, since mpirun would wait, or fail with a page of text that names nobody.
agent=${OMPI_MCA_plm_rsh_agent:-ssh}
try_host() {
  local code=0
  # shellcheck disable=SC2086  # the agent may have arguments
  $agent -o BatchMode=yes -o ConnectTimeout=10 "$1" "cd $(printf %q "$PWD") && test -x $(printf %q "$binary")" \
    </dev/null >/dev/null 2>&1 || code=$?
  case $code in
    0) return 0 ;;
    255) tell "error: $1 does not let this machine in: $agent -o BatchMode=yes $1 true" ;;
    *) tell "error: $1 does not see $PWD or $binary; all machines need the same paths" ;;
  esac
  return 1
}
tries=()
for host in "${hosts[@]}"; do
  case $host in
    localhost | "$HOSTNAME" | "${HOSTNAME%%.*}") ;;
    *) try_host "$host" & tries+=($!) ;;
  esac
done
all_there=true
for try in "${tries[@]}"; do wait "$try" || all_there=false; done
$all_there || exit 2

# The file in the form that Open MPI reads, and the one by which ranks are asked to stop, where all ranks see them.
clean=$(mktemp "$PWD/.tessera-hosts-XXXXXX") || die "no file can be made in $PWD"
for ((i = 0; i < ${#hosts[@]}; i++)); do printf '%s slots=%s\n' "${hosts[i]}" "${slots[i]}"; done >"$clean"
arguments+=(--hostfile "$clean" -x TESSERA_LAUNCH_FOLDER)
folder_in=$PWD
left_over=("$clean")
# shellcheck source=launch/mpirun_job.sh
source "$root/launch/mpirun_job.sh"
