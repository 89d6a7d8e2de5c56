#!/usr/bin/env bash
# Runs clang-tidy (.clang-tidy) on the folders whose files do without LibTorch's headers.
# Usage: tests/tidy.sh [BUILD]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${1:-build/release}
database=$(mktemp -d)
trap 'rm -r "$database"' EXIT
# Clang knows neither GCC's precompiled headers nor its options for them.
sed -e 's/-fpch-preprocess//g; s/-Winvalid-pch//g; s/-include [^ ]*cmake_pch.hxx//g' \
  "$build/compile_commands.json" >"$database/compile_commands.json"
tidy=$(command -v clang-tidy-14 || command -v clang-tidy)
find src/base src/config src/data src/cli -name '*.cpp' -print0 |
  xargs -0 -n 1 -P "$(nproc)" "$tidy" -p "$database" --quiet --extra-arg=-Wno-unknown-warning-option
