#!/usr/bin/env bash
# Compares the built binary with PyTorch and transformers (tests/peers/check_peers.py), in the virtual
# environment that `launch/setup.sh --peers` makes. TESSERA_BIN names another binary.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
python="$root/deps/peers/bin/python"
if [[ ! -x $python ]]; then
  echo "tests/peers/run.sh: $python is missing; run launch/setup.sh --peers first" >&2
  exit 2
fi
OMP_NUM_THREADS=1 TRANSFORMERS_OFFLINE=1 HF_HUB_OFFLINE=1 exec "$python" "$root/tests/peers/check_peers.py" "$@"
