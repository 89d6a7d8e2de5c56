# Shared by the scripts of this folder and by tests/run.sh; sourced, not run.
# shellcheck shell=bash

# The repository's root, whatever folder a script is called from.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s\n' "$*"; }
title() { printf '\n== %s\n' "$*"; }
die() {
  printf '%s: error: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# step TEXT COMMAND [ARG ...]: runs a command quietly with a dot every few seconds and says how long it
# took. If it fails, its whole output follows and the script ends.
step() {
  local text=$1 start=$SECONDS log ticker code=0
  shift
  log=$(mktemp)
  printf '%s ' "$text"
  (while sleep 3; do printf .; done) 9>&- &
  ticker=$!
  # shellcheck disable=SC2064  # expanded now: the trap ends this ticker
  trap "kill $ticker 2>/dev/null || true" EXIT
  "$@" >"$log" 2>&1 </dev/null || code=$?
  kill "$ticker" 2>/dev/null || true
  wait "$ticker" 2>/dev/null || true
  trap - EXIT
  if ((code != 0)); then
    printf ' failed (exit code %d)\n' "$code"
    cat "$log" >&2
    rm -f "$log"
    die "this command failed: $*"
  fi
  printf ' done (%d s)\n' $((SECONDS - start))
  rm -f "$log"
}

# The processors that this process may use. nproc alone would take OMP_NUM_THREADS for their number, which says how many
# threads a rank has and nothing of how many compilers or tests may run.
cores() { env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc; }

# Compilers that may run side by side: one a core, but each may need 1.5 GB.
build_jobs() {
  local cores memory_mib jobs
  cores=$(cores)
  memory_mib=$(awk '/^MemAvailable/ {print int($2 / 1024)}' /proc/meminfo)
  jobs=$((memory_mib / 1500))
  ((jobs < cores)) || jobs=$cores
  ((jobs >= 1)) || jobs=1
  say "$jobs"
}

# build TARGET ...: configures the preset `release` and builds targets of it.
build() {
  local start=$SECONDS
  (cd "$root" && cmake --preset release)
  cmake --build "$root/build/release" -j "$(build_jobs)" --target "$@"
  say "built in build/release ($((SECONDS - start)) s)"
}
