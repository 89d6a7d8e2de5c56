# What a run of tests says at its end: every failed assertion again, and the command that runs exactly that test.
# Sourced by tests/run.sh; tests/launch/report_test.sh tests it.
# shellcheck shell=bash

# What is repeated of a failure: lines, and characters of a line.
report_lines=14
report_width=300

passed=0
failed=()   # what a person calls each failure
reports=()  # for each, what failed and how to run it alone

# The variables that the numbers of tests depend on, as the front of a command.
numeric_environment() {
  local name
  for name in ATEN_CPU_CAPABILITY TESSERA_CPU; do
    [[ -z ${!name:-} ]] || printf '%s=%s ' "$name" "${!name}"
  done
}

# The lines of standard input that say FAIL, else the last ones; indented.
excerpt() {
  local text
  text=$(cat)
  { grep FAIL <<<"$text" || tail -n "$report_lines" <<<"$text"; } |
    head -n "$report_lines" | cut -c "-$report_width" | sed 's/^/      /'
}

# check ID TEXT COMMAND [ARG ...]: one test that is a command; its output is shown if it fails. `tests/run.sh --only
# ID` runs it alone.
check() {
  local id=$1 text=$2 start=$SECONDS output
  shift 2
  if output=$("$@" 2>&1); then
    passed=$((passed + 1))
    printf 'passed  %s (%d s)\n' "$text" $((SECONDS - start))
  else
    failed+=("$text")
    reports+=("$(excerpt <<<"$output")"$'\n'"    alone: $(numeric_environment)tests/run.sh --only $id")
    printf '%s\nFAILED  %s (%d s)\n' "$output" "$text" $((SECONDS - start))
  fi
}

# ctest_results BUILD LOG: counts the tests of a ctest whose output is in LOG, and reports its failures.
ctest_results() {
  local build=$1 log=$2 total name report
  total=$(sed -n 's/.* tests failed out of \([0-9]*\)$/\1/p' "$log")
  if [[ -z $total ]]; then
    failed+=("ctest")
    reports+=("$(excerpt <"$log")"$'\n'"    alone: ctest --test-dir $build --output-on-failure")
    return
  fi
  passed=$((passed + total))
  while read -r name; do
    passed=$((passed - 1))
    report=$(ctest --test-dir "$build" -N -V -R "^$name\$" 2>/dev/null |
      awk -v test="$name" -v lines="$report_lines" -v width="$report_width" -v root="$PWD/" \
        -v front="$(numeric_environment)" -v ctest="ctest --test-dir $build --output-on-failure -R '^$name\$'" \
        "$failures_of_ctest" - "$log")
    failed+=("$name")
    reports+=("$report")
  done < <(sed -n '/The following tests FAILED:/,$s/^[[:space:]]*[0-9]* - \([^ ]*\) (.*/\1/p' "$log")
}

# print_failures: all of them, one after the other.
print_failures() {
  local i
  for ((i = 0; i < ${#failed[@]}; ++i)); do
    printf 'failed: %s\n%s\n' "${failed[i]}" "${reports[i]}"
  done
}

# Reads what `ctest -N -V` says of one test, then the log of a run. Of a GoogleTest program each failed case is
# reported (of several MPI ranks also what ranks but 0 say, as tests/support/mpi_main.cpp prints it), and a case in
# whose middle the program ended; of any other the last lines.
# shellcheck disable=SC2016  # $0 is awk's
failures_of_ctest='
  # The command as a person would type it: quotes only where they are needed, paths from the root.
  function typed(text,    word, result) {
    while (match(text, /"[^"]*"/)) {
      word = substr(text, RSTART + 1, RLENGTH - 2)
      if (word !~ /^[A-Za-z0-9_.\/=:,+@%-]+$/) word = "\"" word "\""
      result = result substr(text, 1, RSTART - 1) word
      text = substr(text, RSTART + RLENGTH)
    }
    result = result text
    while (root != "" && (at = index(result, root)) > 0)
      result = substr(result, 1, at - 1) substr(result, at + length(root))
    return result
  }
  function keep(name, line) {
    if (!(name in count)) { order[++cases] = name; count[name] = 0 }
    if (++count[name] <= lines) text[name] = text[name] "      " substr(line, 1, width) "\n"
  }
  function keep_buffer(name,    i) { for (i = 1; i <= buffered; ++i) keep(name, buffer[i]) }
  # The last lines only.
  function keep_tail(name,    i) {
    for (i = buffered > lines ? buffered - lines + 1 : 1; i <= buffered; ++i) keep(name, buffer[i])
  }
  function case_name(line) {
    line = substr(line, 14)
    sub(/, where .*/, "", line)
    sub(/ \([0-9]+ ms\)$/, "", line)
    return line
  }

  FNR == NR {
    if (sub(/^[0-9]+: Test command: /, "")) command = typed($0)
    else if ($0 ~ /^[0-9]+: +[A-Z][A-Z0-9_]*=/) { sub(/^[0-9]+: +/, ""); environment = environment $0 " " }
    next
  }
  /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / {
    line = $0
    sub(/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: /, "", line)
    inside = index(line, test " ") == 1 && line ~ /\*\*\*/
    if (inside) { verdict = line; sub(/.*\*\*\*/, "", verdict); sub(/ +[0-9.]+ sec *$/, "", verdict) }
    next
  }
  /^ *Start +[0-9]+: / || /^[0-9]+% tests passed/ { inside = 0 }
  !inside { next }
  /^\[ RUN      \] / { running = case_name($0); buffered = 0; googletest = 1; rank = ""; next }
  /^\[       OK \] / { running = ""; buffered = 0; rank = ""; next }
  /^\[  FAILED  \] .* ms\)$/ { keep_buffer(case_name($0)); running = ""; buffered = 0; rank = ""; next }
  /^\[[-= ]+\] / || /^\[  (PASSED|FAILED)  \] / { rank = ""; next }
  /^\[rank [0-9]+\] [^ ]+: / { rank = $3; sub(/:$/, "", rank); keep(rank, $0); next }
  rank != "" { keep(rank, $0); next }
  NF { buffer[++buffered] = $0 }
  END {
    if (running != "") keep_tail(running)
    if (!cases) { keep_tail("the program"); whole = 1 }
    if (verdict != "Failed") printf "    %s\n", verdict
    for (i = 1; i <= cases && i <= 10; ++i) {
      name = order[i]
      if (!whole) printf "    %s%s\n", name, name == running ? " (the program ended in it)" : ""
      printf "%s", text[name]
      if (count[name] > lines) printf "      ... %d more lines\n", count[name] - lines
      if (whole && !googletest) printf "    alone: %s%s\n", front, ctest
      else printf "    alone: %s%s%s%s\n", front, environment, command, whole ? "" : " --gtest_filter=" name
    }
    if (cases > 10) printf "    ... and %d more cases\n", cases - 10
  }'
