#!/usr/bin/env bash
# Sets up, builds, and runs every test and style check. The last line is 'N passed, N failed'.
#
#   tests/run.sh            everything that needs no Python packages
#   tests/run.sh --quick    of the tests only those of seconds, on one process
#   tests/run.sh --numeric  only the tests whose numbers depend on the processor, and no checks; on the lowest processor:
#                           ATEN_CPU_CAPABILITY=default TESSERA_CPU=scalar tests/run.sh --numeric
#   tests/run.sh --peers    also live against PyTorch and transformers (3 GB of downloads, once), and tools/*.py
#   tests/run.sh --only ID  nothing but one check, as the summary of failures names it; without set-up and build
set -euo pipefail
# shellcheck source=launch/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../launch/lib.sh"
cd "$root"
# shellcheck source=tests/report.sh
source tests/report.sh

usage() { sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
peers=false
checks=true
only=''
setup=()
select=()
while (($# > 0)); do
  case $1 in
    --quick) select=(--label-regex '^quick$') ;;
    --numeric) select=(--label-regex '^numeric$') checks=false ;;
    --peers) peers=true setup=(--peers) ;;
    --only)
      only=${2:-}
      [[ -n $only ]] || die "--only needs the name of a check"
      shift
      ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; die "unknown argument '$1'" ;;
  esac
  shift
done

formatted() {
  find src tests benchmarks -name '*.h' -print0 -o -name '*.cpp' -print0 -o -name '*.cu' -print0 | xargs -0 clang-format --dry-run -Werror
}
scripts_clean() {
  shellcheck -x .ci/run launch/*.sh launch/train.sbatch tests/*.sh tests/*/*.sh benchmarks/*.sh docs/*.sh
}
launch_scripts() { tests/launch/launch_test.sh && tests/launch/batch_test.sh; }
# The include order must hold, and its check must see wrong includes.
include_order() {
  tests/include_order.sh || return 1
  local forged folder include
  for include in base:training/train.h training/output:training/loop/trainer.h models/layers:models/vit/vit.h \
    models/vit:models/llama/llama.h; do
    forged=$(mktemp -d)
    folder=$forged/${include%%:*}
    mkdir -p "$folder"
    printf '#include "%s"\n' "${include#*:}" >"$folder/wrong.h"
    if tests/include_order.sh "$forged"; then
      echo "an include of ${include#*:} from ${include%%:*} was not found"
      return 1
    fi
    rm -r "$forged"
  done
}
# The tables of keys in the documentation are those of the program.
documented() {
  diff <(sed '1,/^<!-- keys: begin -->$/d;/^<!-- keys: end -->$/,$d' docs/configuration.md) \
    <(build/release/tessera config keys --markdown) || { echo "run docs/update_configuration.sh"; return 1; }
}

# The checks: an ID, what a person calls it, and a command.
run_checks() {
  run_check format "format of C++ sources (clang-format)" formatted
  run_check scripts "shell scripts (shellcheck)" scripts_clean
  run_check launch "launch scripts" launch_scripts
  run_check report "report of failures" tests/launch/report_test.sh
  run_check includes "include order of folders" include_order
  run_check keys "documented keys are the program's" documented
}
run_peers() {
  run_check tools "tools in Python" deps/peers/bin/python tests/tools/tools_test.py
  run_check peers "comparisons with PyTorch and transformers" tests/peers/run.sh
}
run_check() {
  [[ -n $only && $only != "$1" ]] || check "$@"
}

if [[ -n $only ]]; then
  run_checks
  run_peers
  ((passed + ${#failed[@]} == 1)) || die "no check '$only'"
  exit ${#failed[@]}
fi

title "Set-up"
launch/setup.sh "${setup[@]}"

title "Build"
build all

title "Tests"
# Tests of several ranks use up to four processes each, but wait half of their time.
log=$(mktemp)
jobs=$(($(cores) / 2))
ctest --test-dir build/release --output-on-failure --no-tests=error -j $((jobs > 2 ? jobs : 2)) "${select[@]}" |
  tee "$log" || true
ctest_results build/release "$log"
rm -f "$log"

if $checks; then
  title "Checks"
  run_checks
fi

if $peers; then
  title "Against PyTorch and transformers"
  run_peers
fi

title "Result after $((SECONDS / 60)) min $((SECONDS % 60)) s"
print_failures
say "$passed passed, ${#failed[@]} failed"
((${#failed[@]} == 0))
