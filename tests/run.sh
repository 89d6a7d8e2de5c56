#!/usr/bin/env bash
# Sets up, builds, and runs every test and style check. The last line is 'N passed, N failed'.
#
#   tests/run.sh            everything that needs no Python packages
#   tests/run.sh --quick    of the tests only those of seconds, on one process
#   tests/run.sh --peers    also live against PyTorch and transformers (3 GB of downloads, once), and tools/*.py
set -euo pipefail
# shellcheck source=launch/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../launch/lib.sh"
cd "$root"

usage() { sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
peers=false
setup=()
select=()
for argument in "$@"; do
  case $argument in
    --quick) select=(--label-regex '^quick$') ;;
    --peers) peers=true setup=(--peers) ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; die "unknown argument '$argument'" ;;
  esac
done

passed=0
failed=()

# check NAME COMMAND [ARG ...]: one test that is a command; its output is shown if it fails.
check() {
  local name=$1 start=$SECONDS output
  shift
  if output=$("$@" 2>&1); then
    passed=$((passed + 1))
    printf 'passed  %s (%d s)\n' "$name" $((SECONDS - start))
  else
    failed+=("$name")
    printf '%s\nFAILED  %s (%d s)\n' "$output" "$name" $((SECONDS - start))
  fi
}

formatted() {
  find src tests benchmarks -name '*.h' -print0 -o -name '*.cpp' -print0 -o -name '*.cu' -print0 | xargs -0 clang-format --dry-run -Werror
}
scripts_clean() {
  shellcheck -x .ci/run launch/*.sh launch/train.sbatch tests/*.sh tests/*/*.sh benchmarks/*.sh docs/*.sh
}
# The include order must hold, and its check must see a wrong include.
include_order() {
  tests/include_order.sh || return 1
  local forged
  forged=$(mktemp -d)
  mkdir "$forged/base"
  printf '#include "training/train.h"\n' >"$forged/base/wrong.h"
  if tests/include_order.sh "$forged"; then
    echo "an include from base to training was not found"
    return 1
  fi
  rm -r "$forged"
}
# The tables of keys in the documentation are those of the program.
documented() {
  diff <(sed '1,/^<!-- keys: begin -->$/d;/^<!-- keys: end -->$/,$d' docs/configuration.md) \
    <(build/release/tessera config keys --markdown) || { echo "run docs/update_configuration.sh"; return 1; }
}

title "Set-up"
launch/setup.sh "${setup[@]}"

title "Build"
build all

title "Tests"
# Tests of several ranks use up to four processes each, so few run side by side.
log=$(mktemp)
jobs=$(($(nproc) / 4))
ctest --test-dir build/release --output-on-failure --no-tests=error -j $((jobs > 0 ? jobs : 1)) "${select[@]}" |
  tee "$log" || true
mapfile -t broken < <(sed -n '/The following tests FAILED:/,$s/^[[:space:]]*[0-9]* - \([^ ]*\) (.*/\1/p' "$log")
total=$(sed -n 's/.* tests failed out of \([0-9]*\)$/\1/p' "$log")
rm -f "$log"
if [[ -z $total ]]; then
  failed+=("ctest")
else
  passed=$((passed + total - ${#broken[@]}))
  failed+=("${broken[@]}")
fi

title "Checks"
check "format of C++ sources (clang-format)" formatted
check "shell scripts (shellcheck)" scripts_clean
check "launch scripts" tests/launch/launch_test.sh
check "include order of folders" include_order
check "documented keys are the program's" documented

if $peers; then
  title "Against PyTorch and transformers"
  check "tools in Python" deps/peers/bin/python tests/tools/tools_test.py
  if tests/peers/run.sh; then passed=$((passed + 1)); else failed+=("tests/peers/run.sh"); fi
fi

title "Result after $((SECONDS / 60)) min $((SECONDS % 60)) s"
if ((${#failed[@]} > 0)); then printf 'failed: %s\n' "${failed[@]}"; fi
say "$passed passed, ${#failed[@]} failed"
((${#failed[@]} == 0))
