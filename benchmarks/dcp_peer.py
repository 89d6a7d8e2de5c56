"""The peer of checkpoint.py: FSDP2 training state saved and loaded by PyTorch's own checkpoints (DCP).

Started by torchrun. Builds the Llama of fsdp_peer.py, makes one step (so that Adam has its moments) and measures
torch.distributed.checkpoint: save, async_save and load of model and optimizer, and what its tools start from: the
weights alone, as DCP and as Hugging Face shards. Rank 0 prints one line of JSON: seconds of the slowest rank.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh

from disk import forget
from fsdp_peer import Llama, apply_fsdp, make_optimizer
from sizes import SIZES

SAVES = 2  # of each kind; the first one warms up


def slowest(seconds: float) -> float:
    value = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return value.item()


def timed(work: Callable[[], None]) -> float:
    dist.barrier()
    start = time.perf_counter()
    work()
    return slowest(time.perf_counter() - start)


def empty(folder: Path) -> Path:
    """A name that is free again on all ranks."""
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder, ignore_errors=True)
    dist.barrier()
    return folder


class Peer:
    def __init__(self, size_name: str, seq_len: int) -> None:
        size = replace(SIZES[size_name], seq_len=seq_len, micro_batch=1)
        torch.manual_seed(42)
        self.model = Llama(size)
        apply_fsdp(self.model, init_device_mesh("cpu", (dist.get_world_size(),)), bf16=False)
        self.optimizer = make_optimizer(self.model, "fused")
        tokens = torch.randint(size.vocab, (1, size.seq_len + 1))
        logits = self.model(tokens[:, :-1]).flatten(0, 1)
        torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def state(self) -> dict:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def save(self, folder: Path) -> float:
        state = self.state()
        empty(folder)
        return timed(lambda: dcp.save(state, checkpoint_id=folder))

    def save_async(self, folder: Path) -> tuple[list[float], list[float]]:
        """How long the loop stands still, and until the checkpoint is whole. The saves have a group of their own, as
        PyTorch's documentation has it; the default stager, since that of version 2.11 cannot be used twice."""
        group = dist.new_group(backend="gloo")
        stalls, wholes = [], []
        for _ in range(SAVES):
            state = self.state()
            empty(folder)
            futures = []
            start = time.perf_counter()
            stalls.append(timed(lambda: futures.append(dcp.async_save(
                state, checkpoint_id=folder, process_group=group))))
            futures[0].result()
            wholes.append(slowest(time.perf_counter() - start))
        return stalls[1:], wholes[1:]

    def load(self, folder: Path) -> float:
        def work() -> None:
            state = self.state()
            dcp.load(state, checkpoint_id=folder)
            set_state_dict(self.model, self.optimizer, model_state_dict=state["model"],
                           optim_state_dict=state["optimizer"])
        return timed(work)

    def load_cold(self, folder: Path) -> float:
        dist.barrier()
        if dist.get_rank() == 0:
            forget(folder)
        return self.load(folder)

    def save_weights(self, folder: Path) -> None:
        """What DCP's tools make a whole model of."""
        weights = get_model_state_dict(self.model)
        dcp.save(weights, checkpoint_id=empty(folder / "dcp-weights"))
        dcp.save(weights, storage_writer=HuggingFaceStorageWriter(str(empty(folder / "hf-shards")),
                                                                  save_distributed=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, required=True)
    parser.add_argument("--seq-len", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--parts", nargs="+", required=True)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    peer = Peer(arguments.size, arguments.seq_len)
    whole = arguments.folder / "dcp"
    found: dict[str, list[float]] = {"save": [peer.save(whole) for _ in range(SAVES)][1:]}
    if "load" in arguments.parts:
        found["load_cold"] = [peer.load_cold(whole)]
        found["load_warm"] = [peer.load(whole)]
    if "async" in arguments.parts:
        found["stall"], found["async_save"] = peer.save_async(arguments.folder / "dcp-async")
        empty(arguments.folder / "dcp-async")
    if "tools" in arguments.parts:
        peer.save_weights(arguments.folder)
    if dist.get_rank() == 0:
        print(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
