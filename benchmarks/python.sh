#!/usr/bin/env bash
# Runs a benchmark of this folder in the peers' Python environment; sets up and builds what is missing.
#   python.sh SCRIPT [ARGUMENT ...]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python="$root/deps/peers/bin/python"
[[ -x $python ]] || "$root/launch/setup.sh" --peers
if [[ -z ${TESSERA_BIN:-} && ! -x $root/build/release/tessera ]]; then
  "$root/launch/setup.sh"
  (cd "$root" && cmake --preset release && cmake --build --preset release --target tessera)
fi
exec "$python" "$root/benchmarks/$1" "${@:2}"
