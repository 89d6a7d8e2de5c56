"""Writes and reads token files in Megatron's .bin/.idx layout, as Tessera does (one copy for tests and benchmarks)."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

_DTYPE_CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}


def write_tokens(prefix: Path | str, documents: list[np.ndarray]) -> None:
    """Writes PREFIX.bin and PREFIX.idx; every document is one sequence, all of one integer dtype."""
    dtype = documents[0].dtype
    assert all(d.dtype == dtype and d.ndim == 1 for d in documents)
    lengths = np.array([len(d) for d in documents], dtype="<i4")
    offsets = np.concatenate([[0], np.cumsum(lengths[:-1], dtype=np.int64)]) * dtype.itemsize
    # The document array holds the first sequence of each document and, at the end, their number.
    starts = np.arange(len(documents) + 1, dtype="<i8")
    with open(f"{prefix}.bin", "wb") as out:
        for document in documents:
            out.write(document.astype(dtype.newbyteorder("<")).tobytes())
    with open(f"{prefix}.idx", "wb") as out:
        out.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, _DTYPE_CODES[dtype.name], len(documents), len(starts)))
        out.write(lengths.tobytes() + offsets.astype("<i8").tobytes() + starts.tobytes())


def read_tokens(prefix: Path | str) -> np.ndarray:
    """The whole stream of PREFIX as one array (its dtype comes from the index)."""
    header = Path(f"{prefix}.idx").read_bytes()[:34]
    assert header[:9] == b"MMIDIDX\0\0", f"{prefix}.idx is no Megatron index"
    names = {code: name for name, code in _DTYPE_CODES.items()}
    return np.fromfile(f"{prefix}.bin", dtype=names[header[17]])


def sample(stream: np.ndarray, index: int, seq_len: int) -> np.ndarray:
    """Sample k: tokens [k*S, k*S + S], S+1 of them, as int64."""
    tokens = stream[index * seq_len : index * seq_len + seq_len + 1].astype(np.int64)
    assert len(tokens) == seq_len + 1, f"sample {index} of length {seq_len} is not in the stream"
    return tokens
