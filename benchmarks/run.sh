#!/usr/bin/env bash
# Compares Tessera with PyTorch FSDP2 + TP on this machine (benchmarks/README.md); arguments go to
# compare_fsdp.py. Sets up and builds what is missing.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python="$root/deps/peers/bin/python"
[[ -x $python ]] || "$root/launch/setup.sh" --peers
if [[ -z ${TESSERA_BIN:-} && ! -x $root/build/release/tessera ]]; then
  "$root/launch/setup.sh"
  (cd "$root" && cmake --preset release && cmake --build --preset release --target tessera)
fi
exec "$python" "$root/benchmarks/compare_fsdp.py" "$@"
