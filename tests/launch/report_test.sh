#!/usr/bin/env bash
# Tests tests/report.sh with ctest over stand-ins of test programs, which print what GoogleTest and
# tests/support/mpi_main.cpp print. Prints each failure; exit code 1 if any.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
# shellcheck source=tests/report.sh
source "$root/tests/report.sh"
unset ATEN_CPU_CAPABILITY TESSERA_CPU
wrong=0

# program NAME <<EOF: a stand-in of a test program: a script that cats, and ends as its last line says.
program() {
  { printf '#!/usr/bin/env bash\n' && cat; } >"$work/$1"
  chmod +x "$work/$1"
}
# has TEXT, lacks TEXT: about the report.
has() {
  [[ $report == *"$1"* ]] && return
  printf 'FAILED: not in the report:\n%s\n' "$1"
  wrong=$((wrong + 1))
}
lacks() {
  [[ $report != *"$1"* ]] && return
  printf 'FAILED: in the report, which must not be:\n%s\n' "$1"
  wrong=$((wrong + 1))
}

program good_test <<'END'
printf '[ RUN      ] Good.Case\n[       OK ] Good.Case (0 ms)\n[  PASSED  ] 1 test.\n'
END
program bad_test <<'END'
cat <<'TEXT'
Running main() from gtest_main.cc
[==========] Running 4 tests from 2 test suites.
[----------] 2 tests from Sums
[ RUN      ] Sums.Right
said by a case that passes
[       OK ] Sums.Right (0 ms)
[ RUN      ] Sums.Wrong
/src/tests/sums_test.cpp:12: Failure
Expected equality of these values:
  sum
    Which is: 5
  4
Google Test trace:
/src/tests/sums_test.cpp:10: 1x2x2
[  FAILED  ] Sums.Wrong (3 ms)
[----------] 2 tests from Sums (3 ms total)
[ RUN      ] All/Grid.EqualsOneRank/zero0_untied
/src/tests/grid_test.cpp:99: Failure
The difference is 3.3e-5, which exceeds 2e-5
[  FAILED  ] All/Grid.EqualsOneRank/zero0_untied, where GetParam() = (0, 16-byte object <00-00 (x)>) (12 ms)
[ RUN      ] Sums.Long
TEXT
for ((i = 1; i <= 40; ++i)); do echo "line $i"; done
cat <<'TEXT'
[  FAILED  ] Sums.Long (1 ms)
[==========] 4 tests from 2 test suites ran. (15 ms total)
[  PASSED  ] 1 test.
[  FAILED  ] 3 tests, listed below:
[  FAILED  ] Sums.Wrong
[  FAILED  ] Sums.Long
[  FAILED  ] All/Grid.EqualsOneRank/zero0_untied, where GetParam() = (0, 16-byte object <00-00 (x)>)

 3 FAILED TESTS
TEXT
exit 1
END
program crash_test <<'END'
printf '[ RUN      ] Crash.Early\n[       OK ] Crash.Early (0 ms)\n[ RUN      ] Crash.Here\nlast words\n'
kill -SEGV $$
END
program slow_test <<'END'
printf '[ RUN      ] Slow.Waits\nwaiting\n'
exec sleep 30
END
# Rank 1 alone fails in the first case, both in the second.
program ranks_test <<'END'
cat <<'TEXT'
[ RUN      ] Mpi.OneRank
[rank 1] Mpi.OneRank: tests/mpi_test.cpp:7
Expected equality of these values:
  rank
  0
[       OK ] Mpi.OneRank (1 ms)
[ RUN      ] Mpi.BothRanks
tests/mpi_test.cpp:9: Failure
said by rank 0
[rank 1] Mpi.BothRanks: tests/mpi_test.cpp:9
said by rank 1
[  FAILED  ] Mpi.BothRanks (1 ms)
--------------------------------------------------------------------------
Primary job terminated normally
TEXT
exit 1
END
program script_test <<'END'
for ((i = 1; i <= 40; ++i)); do echo "output $i"; done
exit 3
END
cat >CTestTestfile.cmake <<END
add_test(good_test "$work/good_test")
add_test(bad_test "$work/bad_test" "--flag" "two words")
set_tests_properties(bad_test PROPERTIES ENVIRONMENT "OMP_NUM_THREADS=1" LABELS "quick;numeric")
add_test(crash_test "$work/crash_test")
add_test(slow_test "$work/slow_test")
set_tests_properties(slow_test PROPERTIES TIMEOUT 1)
add_test(ranks_test.n2 "/usr/bin/env" "-u" "NOTHING" "$work/ranks_test")
add_test(ranks_test.n21 "$work/good_test")
add_test(script_test "$work/script_test")
END

many_lines() {
  printf 'found %s\n' {1..30}
  return 1
}

ctest --test-dir . --output-on-failure -j 2 >log 2>&1
ctest_results . log
check quiet "a check that passes" true >/dev/null
check loud "a check that fails" many_lines >/dev/null
check marked "a check that marks its failures" eval 'echo "FAILED: this one"; many_lines' >/dev/null
report=$(print_failures)

[[ $passed == 3 && ${#failed[@]} == 7 ]] ||
  { printf 'FAILED: %d passed and %d failed, not 3 and 7\n' "$passed" "${#failed[@]}"; wrong=$((wrong + 1)); }
has "failed: bad_test
    Sums.Wrong
      /src/tests/sums_test.cpp:12: Failure
      Expected equality of these values:
        sum
          Which is: 5
        4
      Google Test trace:
      /src/tests/sums_test.cpp:10: 1x2x2
    alone: OMP_NUM_THREADS=1 bad_test --flag \"two words\" --gtest_filter=Sums.Wrong
    All/Grid.EqualsOneRank/zero0_untied
      /src/tests/grid_test.cpp:99: Failure
      The difference is 3.3e-5, which exceeds 2e-5
    alone: OMP_NUM_THREADS=1 bad_test --flag \"two words\" --gtest_filter=All/Grid.EqualsOneRank/zero0_untied
    Sums.Long
      line 1
"
has "      line $report_lines
      ... $((40 - report_lines)) more lines
"
lacks "line $((report_lines + 1))
"
lacks "said by a case that passes"
has "    Exception: SegFault
    Crash.Here (the program ended in it)
      last words
    alone: crash_test --gtest_filter=Crash.Here"
has "    Timeout
    Slow.Waits (the program ended in it)
      waiting
    alone: slow_test --gtest_filter=Slow.Waits"
has "failed: ranks_test.n2
    Mpi.OneRank
      [rank 1] Mpi.OneRank: tests/mpi_test.cpp:7
      Expected equality of these values:
        rank
        0
    alone: /usr/bin/env -u NOTHING ranks_test --gtest_filter=Mpi.OneRank
    Mpi.BothRanks
      [rank 1] Mpi.BothRanks: tests/mpi_test.cpp:9
      said by rank 1
      tests/mpi_test.cpp:9: Failure
      said by rank 0
    alone: /usr/bin/env -u NOTHING ranks_test --gtest_filter=Mpi.BothRanks"
lacks "Primary job"
has "      output 40
    alone: ctest --test-dir . --output-on-failure -R '^script_test\$'"
lacks "output 20
"
has "failed: a check that fails"
has "      found 30
    alone: tests/run.sh --only loud"
has "failed: a check that marks its failures
      FAILED: this one
    alone: tests/run.sh --only marked"
lacks "good_test"

# The same numbers need the same processor.
export ATEN_CPU_CAPABILITY=default TESSERA_CPU=scalar
reports=() failed=()
ctest_results . log
check loud "a check that fails" false >/dev/null
report=$(print_failures)
has "    alone: ATEN_CPU_CAPABILITY=default TESSERA_CPU=scalar OMP_NUM_THREADS=1 bad_test"
has "    alone: ATEN_CPU_CAPABILITY=default TESSERA_CPU=scalar tests/run.sh --only loud"

# Two labels: each is found by its own.
for label in quick numeric; do
  ctest --test-dir . -N --label-regex "^$label\$" | grep -q 'Total Tests: 1' ||
    { printf 'FAILED: the label %s\n' "$label"; wrong=$((wrong + 1)); }
done

# A ctest that does not come to its end.
reports=() failed=()
echo "No tests were found!!!" >log
ctest_results . log
report=$(print_failures)
has "failed: ctest
      No tests were found!!!"

((wrong == 0)) || exit 1
echo "report of failures: all as expected"
