#!/usr/bin/env bash
# Checks the order of the folders of src/ (docs/architecture.md): a file may include its own folder and
# those to the right of it, nothing to the left and nothing beside it.
#
#   main -> cli -> training -> planner -> config -> { models, optim, data } -> checkpoint -> parallel ->
#   { kernels, safetensors } -> base
#
#   tests/include_order.sh [SRC]
set -euo pipefail
src=${1:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/src}
# shellcheck disable=SC2016  # $0 is awk's
find "$src" \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' \) -print0 | sort -z |
  xargs -0 awk -v src="$src/" '
    BEGIN {
      split("main cli training planner config models,optim,data checkpoint parallel kernels,safetensors base", levels, " ")
      for (level in levels) {
        n = split(levels[level], folders, ",")
        for (i = 1; i <= n; ++i) rank[folders[i]] = level + 0
      }
    }
    function folder_of(path) { return index(path, "/") ? substr(path, 1, index(path, "/") - 1) : "main" }
    FNR == 1 {
      path = substr(FILENAME, length(src) + 1)
      from = folder_of(path)
      ++files
      if (!(from in rank)) { print path ": the folder " from " has no place in the order"; ++wrong }
    }
    /^[ \t]*#[ \t]*include[ \t]*"/ {
      split($0, quoted, "\"")
      to = folder_of(quoted[2])
      if (to == from) next
      if (!index(quoted[2], "/")) {
        print path ":" FNR ": \"" quoted[2] "\" must start at src/, as \"" from "/" quoted[2] "\""; ++wrong
      } else if (!(to in rank)) {
        print path ":" FNR ": \"" quoted[2] "\": the folder " to " has no place in the order"; ++wrong
      } else if (rank[to] <= rank[from]) {
        print path ":" FNR ": " from " must not include \"" quoted[2] "\": " to " is not to its right"; ++wrong
      }
    }
    END {
      if (!files) { print "no sources under " src; exit 1 }
      print files " files, " wrong + 0 " wrong includes"
      exit wrong > 0
    }'
