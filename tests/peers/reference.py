"""Plain PyTorch: a Hugging Face Llama trained with torch.optim.AdamW, and the measures of a comparison.

Used by the live comparison (check_peers.py) and by the maker of the golden files (../golden/make_golden.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

from megatron_index import sample

logging.disable_progress_bar()  # its lines would stand between the checks'


@dataclass
class AdamW:
    lr: float  # the peak
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.1
    clip_grad_norm: float = 1.0


@dataclass
class Curve:
    loss: list[float]
    grad_norm: list[float]


def make_model(seed: int, **sizes: object) -> LlamaForCausalLM:
    """A randomly initialised model whose every weight matters.

    Hugging Face's initial deviation of 0.02 makes attention almost uniform at such sizes, and its norm
    weights are all one: a fault in RoPE, the scale or the norms' order would not show.
    """
    torch.manual_seed(seed)
    config = LlamaConfig(
        **{"initializer_range": 0.1, "rms_norm_eps": 1e-5, "bos_token_id": None, "eos_token_id": None} | sizes
    )
    model = LlamaForCausalLM(config).float()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 1:
                weight.copy_(1 + 0.1 * torch.randn_like(weight))
    return model


def make_tokens(seed: int, count: int, vocab_size: int) -> np.ndarray:
    """Tokens with something to learn: each follows from the one before, with skewed noise."""
    generator = np.random.default_rng(seed)
    noise = np.minimum(generator.geometric(0.3, count) - 1, vocab_size - 1)
    tokens = np.zeros(count, dtype=np.int64)
    for i in range(1, count):
        tokens[i] = (5 * tokens[i - 1] + 3 + noise[i]) % vocab_size
    return tokens


def train(
    model: LlamaForCausalLM,
    stream: np.ndarray,
    seq_len: int,
    batches: list[list[int]],
    lrs: list[float],
    options: AdamW,
) -> Curve:
    """Trains in place, one step per batch of sample ids; each step's loss is the mean over its tokens."""
    decayed = [p for p in model.parameters() if p.ndim >= 2]  # matrices only, embeddings included
    others = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": options.weight_decay}, {"params": others, "weight_decay": 0.0}],
        lr=options.lr,
        betas=options.betas,
        eps=options.eps,
    )
    curve = Curve([], [])
    for ids, lr in zip(batches, lrs, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = lr
        tokens = torch.from_numpy(np.stack([sample(stream, i, seq_len) for i in ids]))
        logits = model(tokens[:, :-1], use_cache=False).logits
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), options.clip_grad_norm)
        optimizer.step()
        curve.loss.append(loss.item())
        curve.grad_norm.append(norm.item())
    return curve


def relative(value: float, reference: float) -> float:
    return abs(value - reference) / abs(reference)


def weight_distance(value: torch.Tensor, reference: torch.Tensor, lr: float, steps: int) -> float:
    """|difference| / max(|w|, lr * steps * sqrt(n)), norms of a whole tensor.

    Not element by element: AdamW moves an element by about lr whatever its gradient's size, so one whose
    gradient is zero in exact arithmetic goes either way on a rounding.
    """
    difference = torch.linalg.vector_norm((value.double() - reference.double()))
    scale = max(torch.linalg.vector_norm(reference.double()).item(), lr * steps * math.sqrt(reference.numel()))
    return difference.item() / scale


@torch.no_grad()
def logits_of(model: LlamaForCausalLM, tokens: torch.Tensor) -> torch.Tensor:
    return model(tokens, use_cache=False).logits


def logits_distance(value: torch.Tensor, reference: torch.Tensor) -> float:
    """The largest difference, as a part of the largest logit."""
    return ((value - reference).abs().max() / reference.abs().max()).item()
