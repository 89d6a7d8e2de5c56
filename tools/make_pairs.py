#!/usr/bin/env python3
"""Writes pairs for an encoder-decoder that learns to reverse: random sequences, and the same backwards.

  tools/make_pairs.py OUT [--count 20000] [--valid 500] [--length 4 12] [--vocab-size 32] [--seed 1] [--force]

writes OUT-source, OUT-target, OUT-valid-source and OUT-valid-target (.bin and .idx each, Megatron's layout).
Ids 0, 1 and 2 are left for padding, begin and end, which Tessera adds; no held-out sequence is among those
for training. Files that are there already are replaced, all together, with --force only. Run it with
deps/tools/bin/python (launch/setup.sh --tools) or any Python with numpy.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from needs import ROOT, need
from outputs import Outputs

RESERVED = 3
MAX_VOCAB = 2**31


def check(arguments: argparse.Namespace) -> None:
    """Ends with a message if the sequences that are asked for do not exist."""
    low, high = arguments.length
    wanted = arguments.count + arguments.valid
    if arguments.count < 1 or arguments.valid < 0:
        raise SystemExit(f"--count {arguments.count} --valid {arguments.valid}: at least 1 and 0 are needed")
    if not 1 <= low <= high:
        raise SystemExit(f"--length {low} {high}: MIN must be at least 1, and MAX at least MIN")
    if not RESERVED < arguments.vocab_size <= MAX_VOCAB:
        raise SystemExit(f"--vocab-size {arguments.vocab_size}: must be from {RESERVED + 1} (ids 0 to {RESERVED - 1} "
                         f"are reserved) to {MAX_VOCAB}")
    values, distinct = arguments.vocab_size - RESERVED, 0
    for length in range(low, high + 1):
        distinct += values**length
        if distinct >= wanted:
            return
    raise SystemExit(f"--count {arguments.count} --valid {arguments.valid}: there are {distinct} distinct sequences of "
                     f"{low} to {high} of {values} values; lower them, or raise --length or --vocab-size")


def files_of(prefix: str) -> list[Path]:
    return [Path(f"{prefix}.bin"), Path(f"{prefix}.idx")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--valid", type=int, default=500)
    parser.add_argument("--length", type=int, nargs=2, default=(4, 12), metavar=("MIN", "MAX"))
    parser.add_argument("--vocab-size", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--force", action="store_true", help="replace the files that are there, all together")
    arguments = parser.parse_args()
    check(arguments)
    files = [file for name in ("-source", "-target", "-valid-source", "-valid-target")
             for file in files_of(arguments.out + name)]
    outputs = Outputs(files, arguments.force)
    need("numpy")
    import numpy as np

    sys.path.insert(0, str(ROOT / "tests/peers"))
    from megatron_index import write_tokens

    generator = np.random.default_rng(arguments.seed)
    low, high = arguments.length
    dtype = np.uint16 if arguments.vocab_size <= 2**16 else np.int32
    seen: set[bytes] = set()
    sequences: list[np.ndarray] = []
    while len(sequences) < arguments.count + arguments.valid:
        length = generator.integers(low, high + 1)
        sequence = generator.integers(RESERVED, arguments.vocab_size, length).astype(dtype)
        if sequence.tobytes() in seen:
            continue
        seen.add(sequence.tobytes())
        sequences.append(sequence)
    parts = {"-valid": sequences[: arguments.valid], "": sequences[arguments.valid :]}
    with outputs:
        for name, part in parts.items():
            for side, step in (("source", 1), ("target", -1)) if part else ():
                tokens, _ = (outputs.begin(file) for file in files_of(f"{arguments.out}{name}-{side}"))
                write_tokens(tokens.with_suffix(""), [sequence[::step] for sequence in part])
    for name, part in parts.items():
        if part:
            print(f"wrote {arguments.out}{name}-source and -target: {len(part)} pairs of {low} to {high} tokens")


if __name__ == "__main__":
    main()
