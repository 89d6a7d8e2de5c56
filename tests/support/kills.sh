# What the tests that kill programs at random moments have in common; sourced, not run. The test sets `wanted` (kills)
# and `trial` (what it is at, for die()), then calls `begin_kills "$@"`.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # `wanted` and `trial` are the test's

# begin_kills TESSERA [--kills N] [--seed S]: sets `tessera`, `wanted`, `seed` and a `folder` that goes with the test.
begin_kills() {
  tessera=$(realpath "$1") seed=1
  shift
  while (($# > 0)); do
    case $1 in
      --kills) wanted=$2 ;;
      --seed) seed=$2 ;;
      *) echo "${0##*/}: '$1' is no option; there are --kills N and --seed S" >&2; exit 2 ;;
    esac
    shift 2
  done
  RANDOM=$seed
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  mkfifo "$folder/never"
  exec 3<>"$folder/never"  # what pause() reads from, so that it need not start a process
  export OMP_NUM_THREADS=1 OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader
  launcher=(mpirun --quiet --oversubscribe --bind-to none -n 4)
  ((EUID != 0)) || launcher+=(--allow-run-as-root)
}

# Makes "$folder/tokens", a text to train on.
pack_text() {
  local i
  for ((i = 0; i < 4000; i++)); do echo "line $((i * 7 % 1000))"; done >"$folder/text"
  "$tessera" data pack "$folder/text" --out "$folder/tokens" >/dev/null
}

die() {
  echo "FAILED: $trial: $*"
  [[ ! -e $folder/log ]] || tail -n 20 "$folder/log"
  exit 1
}

pause() {  # MS
  local seconds
  printf -v seconds '%d.%03d' $(($1 / 1000)) $(($1 % 1000))
  read -rt "$seconds" -u 3 _ || true
}
