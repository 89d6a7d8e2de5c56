"""Checkpoints read by Python: tools/read_checkpoint.py gives what the program itself gives, bit for bit, whatever mesh
wrote them; and each rank's file is one that the ordinary safetensors library reads.

Used by check_peers.py.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
from safetensors import safe_open
from safetensors.torch import load_file

import reference
import tessera
from megatron_index import write_tokens

SEQ_LEN = 16
MODEL = {"type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 67}
MESHES = {"2x2": {"dp_shard": 2, "tp": 2}, "4x1": {"dp_shard": 4}, "1x2": {"tp": 2},
          "HSDP 2x2x1": {"dp_replicate": 2, "dp_shard": 2}, "zero 0 of 2x1": {"dp_shard": 2, "zero": 0}}


def reader() -> ModuleType:
    spec = importlib.util.spec_from_file_location("read_checkpoint", tessera.ROOT / "tools/read_checkpoint.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def train(mesh: dict, data: Path, folder: Path) -> Path:
    config = {"model": MODEL, "parallel": {"dp_shard": 1, "dp_replicate": 1, "tp": 1} | mesh,
              "data": {"train": [str(data)], "seq_len": SEQ_LEN},
              "training": {"steps": 2, "global_batch_size": 4, "micro_batch_size": 1}, "optimizer": {"lr": 1e-2}}
    parallel = config["parallel"]
    tessera.train(config, folder, ranks=parallel["dp_replicate"] * parallel["dp_shard"] * parallel["tp"])
    return tessera.newest_step(folder / "run")


def check_checkpoints(checks, folder: Path) -> None:
    data = folder / "tokens"
    write_tokens(data, [reference.make_tokens(5, 40 * SEQ_LEN + 1, MODEL["vocab_size"]).astype("uint16")])
    read_checkpoint = reader()
    for name, mesh in MESHES.items():
        of_mesh = folder / name.replace(" ", "-")
        of_mesh.mkdir()
        step = train(mesh, data, of_mesh)
        tessera.run("checkpoint", "consolidate", step, of_mesh / "exported")
        checkpoint = read_checkpoint.Checkpoint(step)
        exported = {key: tensor.numpy() for key, tensor in load_file(of_mesh / "exported/model.safetensors").items()}
        names = [row["name"] for row in checkpoint.manifest["tensors"]]
        checks.true(f"{name}: Python reads the weights of {len(names)} tensors as consolidate does, bit for bit",
                    names != [] and all(same(checkpoint.read(key), exported[key]) for key in names))
        check_files(checks, name, checkpoint, step)
        # A step earlier the moments were zero, so that a place that nobody has filled would show.
        moments = [checkpoint.read(key, "exp_avg_sq") for key in names]
        checks.true(f"{name}: second moments are there and positive", all((moment >= 0).all() for moment in moments)
                    and sum(int((moment > 0).sum()) for moment in moments) > 0.9 * sum(m.size for m in moments))


def check_files(checks, name: str, checkpoint, step: Path) -> None:
    """Each piece of the index is the entry of that name in the file, by the safetensors library."""
    tensors, states = checkpoint.manifest["tensors"], checkpoint.manifest["states"]
    index, good, pieces = checkpoint.index, True, 0
    for number, row in enumerate(checkpoint.manifest["files"]):
        with safe_open(step / row["name"], "numpy") as file:
            mine = np.flatnonzero(index["file"] == number)
            keys = {f"{tensors[index['tensor'][p]]['name']}/{states[index['state'][p]]}": p for p in mine}
            good &= set(file.keys()) == set(keys) and file.metadata() == {"format": "tessera-rank-file/2"}
            for key, p in keys.items():
                begin, end = int(index["begin"][p]), int(index["end"][p])
                data = np.fromfile(step / row["name"], np.float32, end - begin, offset=int(index["offset"][p]))
                good &= same(file.get_tensor(key), data)
            pieces += len(keys)
    checks.true(f"{name}: {pieces} pieces are the entries of {number + 1} files", good and pieces == len(index["file"]))

