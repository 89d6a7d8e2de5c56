#!/usr/bin/env bash
# Writes what launch/quickstart.sh printed into README.md, from a log of a whole run on a machine that was idle:
#   rm -r runs/quickstart; launch/quickstart.sh | tee log; docs/update_quickstart.sh log
# Of the lines of steps every hundredth step stays, and nothing else is left out between training and the summary.
set -euo pipefail
log=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
grep -q '^done: 800 steps' "$log" || { echo "$log holds no whole run of 800 steps" >&2; exit 1; }
commit=$(git rev-parse --short HEAD)
kept=$(awk '
  /^Where everything is/ { exit }
  /^== Training/ { inside = 1 }
  inside && !($1 ~ /^[0-9]+$/ && NF > 6 && $1 % 100 != 0)' "$log" | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}')
{
  sed '/^<!-- quickstart: begin -->$/q' README.md
  printf "Commit %s printed this from the training on, on a 2-core virtual machine without a GPU. Of the lines of steps\n" "$commit"
  printf "every hundredth step is shown, nothing else is left out:\n\n"
  # shellcheck disable=SC2016  # not a command
  printf '```\n%s\n```\n' "$kept"
  sed -n '/^<!-- quickstart: end -->$/,$p' README.md
} >README.md.new
mv README.md.new README.md
