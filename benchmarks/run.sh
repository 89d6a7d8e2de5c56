#!/usr/bin/env bash
# Compares Tessera with PyTorch FSDP2 + TP on this machine (benchmarks/README.md); arguments go to
# compare_fsdp.py.
exec "$(dirname "${BASH_SOURCE[0]}")/python.sh" compare_fsdp.py "$@"
