#!/usr/bin/env bash
# Builds and runs tests under a sanitizer; a warning is a failure. What LibTorch, which is not instrumented, does
# inside itself is left out by tests/sanitizers/.
#
#   tests/sanitize.sh thread     communicators, saves beside training, buckets, executor, and the diagonal of the grid (34 layouts)
#   tests/sanitize.sh address    unit tests of base, parallel and checkpoint; undefined behaviour too
set -euo pipefail
# shellcheck source=launch/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../launch/lib.sh"
cd "$root"
rules="$root/tests/sanitizers"
case ${1:-} in
  thread)
    preset=tsan
    tests=(thread_communicator_test saver_test flat_bucket_test compare_replicas_test bucket_set_test module_stage_test trace_test
      'grid_test --gtest_filter=Diagonal.*')
    ;;
  address)
    preset=asan
    tests=(box_test dtype_test files_test name_pattern_test philox_test xxh3_test
      self_communicator_test thread_communicator_test mesh_test slot_plan_test flat_bucket_test compare_replicas_test
      moment_file_test bucket_set_test module_stage_test memory_model_test trace_test safetensors_test manifest_test
      forged_test piece_index_test reader_test manager_test saver_test convert_test)
    ;;
  *)
    sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
export OMP_NUM_THREADS=1
export TSAN_OPTIONS="suppressions=$rules/tsan.supp:halt_on_error=0:exitcode=66:history_size=4"
export ASAN_OPTIONS="detect_leaks=1:detect_stack_use_after_return=0"
export LSAN_OPTIONS="suppressions=$rules/lsan.supp:print_suppressions=0"
export UBSAN_OPTIONS="suppressions=$rules/ubsan.supp:print_stacktrace=1:halt_on_error=1"

step "Configuring $preset" cmake --preset "$preset"
step "Building ${#tests[@]} tests with $preset" \
  cmake --build "build/$preset" -j "$(build_jobs)" --target "${tests[@]%% *}"
failed=0
for test in "${tests[@]}"; do
  read -r -a command <<<"$test"
  start=$SECONDS
  if output=$("build/$preset/${command[0]}" "${command[@]:1}" 2>&1); then
    say "passed  $test ($((SECONDS - start)) s)"
  else
    failed=$((failed + 1))
    printf '%s\nFAILED  %s (%d s)\n' "$output" "$test" $((SECONDS - start))
  fi
done
((failed == 0))
