#!/usr/bin/env bash
# Compares Tessera's checkpoints with PyTorch's (DCP) and with the bare disk on this machine (benchmarks/README.md);
# arguments go to checkpoint.py. Exit code 1: a ratio is beyond its limit.
exec "$(dirname "${BASH_SOURCE[0]}")/python.sh" checkpoint.py "$@"
