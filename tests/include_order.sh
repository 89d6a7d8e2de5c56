#!/usr/bin/env bash
# Checks the order of the folders of src/ (docs/architecture.md): a file may include its own folder and
# those to the right of it, nothing to the left and nothing beside it.
#
#   main -> cli -> training -> config -> { models, optim, data } -> { checkpoint, doctor } -> parallel ->
#   { kernels, safetensors } -> base
#
# The folders inside one of them are floors, and have an order too (BEGIN below): a file may include its own floor and
# those named before it. Floors that a + joins lie beside each other and do not include each other. Files that lie in
# none of these floors may include all of them, and be included by all.
#
#   tests/include_order.sh [SRC]
set -euo pipefail
src=${1:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/src}
# shellcheck disable=SC2016  # $0 is awk's
find "$src" \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' \) -print0 | sort -z |
  xargs -0 awk -v src="$src/" '
    BEGIN {
      split("main cli training config models,optim,data checkpoint,doctor parallel kernels,safetensors base", levels, " ")
      for (level in levels) {
        n = split(levels[level], folders, ",")
        for (i = 1; i <= n; ++i) rank[folders[i]] = level + 0
      }
      n = split("base:text,process,files,fields checkpoint:format,store,huggingface,tools config:yaml,keys,rules " \
                "models:layers,llama+gpt2+vit+transformer " \
                "parallel:device,comm,tensor_parallel,fsdp,executor parallel/comm:core,shm,mpi,nccl " \
                "training:output,watch,engine,loop,start doctor:facts,probes+measure+judge,report", houses, " ")
      for (i = 1; i <= n; ++i) {
        split(houses[i], house, ":")
        m = split(house[2], floors, ",")
        for (j = 1; j <= m; ++j) {
          k = split(floors[j], beside, "+")
          for (; k >= 1; --k) floor[house[1] "/" beside[k]] = j
        }
      }
    }
    # Reports an include of a later floor or of one beside it, in any house that both paths lie in.
    function check_floors(from, to,    parts, n, i, house, a, b) {
      n = split(to, parts, "/")
      house = ""
      for (i = 1; i < n - 1; ++i) {
        house = house (i > 1 ? "/" : "") parts[i]
        if (index(from, house "/") != 1) return
        a = substr(from, length(house) + 2)
        a = house "/" substr(a, 1, index(a, "/") - 1)
        b = house "/" parts[i + 1]
        if (a in floor && b in floor && a != b && floor[b] >= floor[a]) {
          print from ":" FNR ": " a " must not include \"" to "\": " b " is " \
                (floor[b] > floor[a] ? "a later floor" : "a floor beside it"); ++wrong
        }
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
      check_floors(path, quoted[2])
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
