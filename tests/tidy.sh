#!/usr/bin/env bash
# Runs clang-tidy (.clang-tidy) on the folders whose files do without LibTorch's headers: base, config, data and cli.
# Needs clang-tidy, which launch/setup.sh does not install, and a build folder.
# Usage: tests/tidy.sh [BUILD]
set -euo pipefail
# shellcheck source=launch/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../launch/lib.sh"
cd "$root"
build=${1:-build/release}
tidy=$(command -v clang-tidy-14 || command -v clang-tidy) ||
  die "clang-tidy is missing; install it with apt-get install clang-tidy"
[[ -e $build/compile_commands.json ]] ||
  die "$build/compile_commands.json is missing; build first: launch/setup.sh, then cmake --preset release and ninja"
database=$(mktemp -d)
trap 'rm -r "$database"' EXIT
# Clang knows neither GCC's precompiled headers nor its options for them.
sed -e 's/-fpch-preprocess//g; s/-Winvalid-pch//g; s/-include [^ ]*cmake_pch.hxx//g' \
  "$build/compile_commands.json" >"$database/compile_commands.json"
find src/base src/config src/data src/cli -name '*.cpp' -print0 |
  xargs -0 -n 1 -P "$(cores)" "$tidy" -p "$database" --quiet --extra-arg=-Wno-unknown-warning-option
