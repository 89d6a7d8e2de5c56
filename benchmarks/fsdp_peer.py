"""The peer: a Llama trained by PyTorch FSDP2 + TP over gloo, as PyTorch's own tutorials write it.

Started by torchrun (compare_fsdp.py does it). fully_shard on every block and on the root, with
MixedPrecisionPolicy for bf16; tensor parallelism by parallelize_module, the embedding and the head split
over the vocabulary, and loss_parallel, so that logits are never gathered. Writes a line per step to
RUN/metrics.jsonl, as Tessera does.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/peers"))
from megatron_index import read_tokens, sample  # noqa: E402

from sizes import SIZES, Size  # noqa: E402


def rope_tables(seq_len: int, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """cos and sin, [S, head_dim / 2], fp32."""
    inverse = 1.0 / theta ** (torch.arange(0, head_dim, 2).float() / head_dim)
    angles = torch.outer(torch.arange(seq_len).float(), inverse)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates the two halves of each head; x [B, heads, S, head_dim]."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class Attention(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.head_dim = size.hidden // size.heads
        kv_size = size.kv_heads * self.head_dim
        self.q_proj = nn.Linear(size.hidden, size.hidden, bias=False)
        self.k_proj = nn.Linear(size.hidden, kv_size, bias=False)
        self.v_proj = nn.Linear(size.hidden, kv_size, bias=False)
        self.o_proj = nn.Linear(size.hidden, size.hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, seq_len, _ = x.shape
        # -1 heads: under tensor parallelism the projections give this rank's heads only.
        q, k, v = (
            projection(x).view(batch, seq_len, -1, self.head_dim).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=k.shape[1] != q.shape[1])
        return self.o_proj(out.transpose(1, 2).reshape(batch, seq_len, -1))


class FeedForward(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(size.hidden, size.ffn, bias=False)
        self.up_proj = nn.Linear(size.hidden, size.ffn, bias=False)
        self.down_proj = nn.Linear(size.ffn, size.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(size.hidden, eps=1e-5)
        self.attention = Attention(size)
        self.ffn_norm = nn.RMSNorm(size.hidden, eps=1e-5)
        self.ffn = FeedForward(size)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.ffn(self.ffn_norm(x))


class Llama(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size.vocab, size.hidden)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.hidden, eps=1e-5)
        self.head = nn.Linear(size.hidden, size.vocab, bias=False)
        cos, sin = rope_tables(size.seq_len, size.hidden // size.heads, 10000.0)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for parameter in self.parameters():
            if parameter.ndim >= 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))


def apply_tensor_parallel(model: Llama, mesh: DeviceMesh) -> None:
    parallelize_module(model, mesh, {
        "embedding": RowwiseParallel(input_layouts=Replicate()),  # of an embedding: over the vocabulary
        "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
    })
    for block in model.blocks:
        parallelize_module(block, mesh, {
            "attention.q_proj": ColwiseParallel(),
            "attention.k_proj": ColwiseParallel(),
            "attention.v_proj": ColwiseParallel(),
            "attention.o_proj": RowwiseParallel(),
            "ffn.gate_proj": ColwiseParallel(),
            "ffn.up_proj": ColwiseParallel(),
            "ffn.down_proj": RowwiseParallel(),
        })


def apply_fsdp(model: Llama, mesh: DeviceMesh, bf16: bool) -> None:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    options = {"mesh": mesh} | ({"mp_policy": policy} if bf16 else {})
    for block in model.blocks:
        fully_shard(block, **options)
    fully_shard(model, **options)


def make_optimizer(model: Llama, implementation: str) -> torch.optim.Optimizer:
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, **{implementation: True})


def clip_grad_norm(model: Llama, max_norm: float) -> float:
    """torch's clipping, one total norm over both meshes: with TP, norm weights live on the dp mesh alone."""
    by_mesh: dict[DeviceMesh | None, list[nn.Parameter]] = {}
    for parameter in model.parameters():
        by_mesh.setdefault(getattr(parameter, "device_mesh", None), []).append(parameter)
    norms = []
    for parameters in by_mesh.values():
        norm = nn.utils.get_total_norm([p.grad for p in parameters], foreach=True)
        norms.append(norm.full_tensor() if isinstance(norm, DTensor) else norm)
    total = torch.linalg.vector_norm(torch.stack(norms))
    for parameters in by_mesh.values():
        nn.utils.clip_grads_with_norm_(parameters, max_norm, total, foreach=True)
    return total.item()


class Trainer:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.size = SIZES[arguments.size]
        mesh = init_device_mesh("cpu", (arguments.dp, arguments.tp), mesh_dim_names=("dp", "tp"))
        self.dp, self.dp_group = mesh["dp"].size(), mesh["dp"].get_group()
        self.dp_rank = mesh["dp"].get_local_rank()
        self.tensor_parallel = arguments.tp > 1
        torch.manual_seed(42)
        self.model = Llama(self.size)
        if self.tensor_parallel:
            apply_tensor_parallel(self.model, mesh["tp"])
        if not arguments.unwrapped:
            apply_fsdp(self.model, mesh["dp"], arguments.dtype == "bf16")
        self.optimizer = make_optimizer(self.model, arguments.adamw)
        self.stream = read_tokens(arguments.data)
        self.samples = (len(self.stream) - 1) // self.size.seq_len
        self.next_sample = 0

    def batch(self) -> Tensor:
        """This rank's rows of the next global batch, [B, S + 1]."""
        first = self.next_sample + self.dp_rank * self.size.micro_batch
        self.next_sample += self.dp * self.size.micro_batch
        rows = [sample(self.stream, (first + i) % self.samples, self.size.seq_len)
                for i in range(self.size.micro_batch)]
        return torch.stack([torch.from_numpy(row) for row in rows])

    def loss(self, tokens: Tensor) -> Tensor:
        logits = self.model(tokens[:, :-1]).flatten(0, 1).float()
        return F.cross_entropy(logits, tokens[:, 1:].flatten())

    def step(self) -> tuple[float, float]:
        """One optimizer step; the global loss and gradient norm, as a training log shows them."""
        tokens = self.batch()
        self.optimizer.zero_grad()
        if self.tensor_parallel:
            with loss_parallel():
                loss = self.loss(tokens)
                loss.backward()
            loss = loss.full_tensor()
        else:
            loss = self.loss(tokens)
            loss.backward()
        norm = clip_grad_norm(self.model, 1.0)
        self.optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total, group=self.dp_group)
        return total.item() / self.dp, norm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, required=True)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], required=True)
    parser.add_argument("--dp", type=int, required=True)
    parser.add_argument("--tp", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--data", required=True, help="prefix of a .bin/.idx pair")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--adamw", choices=["fused", "foreach"], default="fused")
    parser.add_argument("--unwrapped", action="store_true", help="plain PyTorch, without fully_shard: one rank, fp32")
    arguments = parser.parse_args()
    if arguments.unwrapped and (arguments.dp, arguments.tp, arguments.dtype) != (1, 1, "fp32"):
        parser.error("--unwrapped: only for --dp 1 --tp 1 --dtype fp32")

    dist.init_process_group("gloo")
    trainer = Trainer(arguments)
    metrics = None
    if dist.get_rank() == 0:
        arguments.run_dir.mkdir(parents=True, exist_ok=True)
        metrics = open(arguments.run_dir / "metrics.jsonl", "w", buffering=1)
    for step in range(1, arguments.steps + 1):
        start = time.perf_counter()
        loss, norm = trainer.step()
        step_ms = 1000 * (time.perf_counter() - start)
        if metrics:
            metrics.write(json.dumps({"step": step, "loss": loss, "grad_norm": norm, "step_ms": step_ms}) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
