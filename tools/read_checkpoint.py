#!/usr/bin/env python3
"""Reads a checkpoint of Tessera, whatever mesh wrote it, with numpy and safetensors alone.

  tools/read_checkpoint.py STEP OUT.safetensors [STATE]   every tensor's STATE (param, exp_avg, ...) into one file

docs/checkpoint-format.md says what is read here. Checksums are left to `tessera checkpoint verify`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16}  # numpy has no bf16


class Checkpoint:
    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.manifest = json.loads((self.folder / "manifest.json").read_text())
        if self.manifest["version"] != 3:
            raise ValueError(f"{folder}: format version {self.manifest['version']}, this program reads 3")
        path = self.folder / self.manifest["index"]["name"]
        self.index = load_file(path)
        with safe_open(path, "numpy") as file:
            self.dtypes = json.loads(file.metadata()["dtypes"])
        ends = np.cumsum(self.index["box_dims"])  # of each box's numbers in box_offset and box_shape
        self.boxes = [(self.index["box_offset"][end - dims:end], self.index["box_shape"][end - dims:end])
                      for end, dims in zip(ends, self.index["box_dims"])]

    def read(self, tensor: str, state: str = "param") -> np.ndarray:
        """A state of a tensor, whole; bf16 as fp32."""
        row = [info["name"] for info in self.manifest["tensors"]].index(tensor)
        wanted = (self.index["tensor"] == row) & (self.index["state"] == self.manifest["states"].index(state))
        dtype, parts = "F32", {}
        for piece in np.flatnonzero(wanted):
            file, box, begin, end, offset = (int(self.index[name][piece]) for name in ("file", "box", "begin", "end", "offset"))
            dtype = self.dtypes[self.index["dtype"][piece]]
            part = parts.setdefault(box, np.empty(np.prod(self.boxes[box][1], dtype=int), DTYPES[dtype]))
            path = self.folder / self.manifest["files"][file]["name"]
            part[begin:end] = np.fromfile(path, DTYPES[dtype], end - begin, offset=offset)
        whole = np.empty(self.manifest["tensors"][row]["shape"], DTYPES[dtype])
        for box, part in parts.items():
            offset, shape = self.boxes[box]
            whole[tuple(slice(low, low + size) for low, size in zip(offset, shape))] = part.reshape(shape)
        return (whole.astype(np.uint32) << 16).view(np.float32) if dtype == "BF16" else whole


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        raise SystemExit(__doc__)
    checkpoint, name = Checkpoint(sys.argv[1]), sys.argv[3] if len(sys.argv) == 4 else "param"
    rows = [row for row in checkpoint.manifest["tensors"] if name in row.get("states", checkpoint.manifest["states"])]
    save_file({row["name"]: checkpoint.read(row["name"], name) for row in rows}, sys.argv[2])
