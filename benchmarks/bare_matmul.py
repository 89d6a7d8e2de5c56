"""The floor: the matrix products of one training step and nothing else.

torch.mm at the shapes of one rank's linear layers (forward, input gradient, weight gradient), one thread
per rank, as many processes at once as the mesh has ranks: what the step would take if attention, norms,
the optimizer and all communication cost nothing. Both sides use the same products of the same library.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from multiprocessing.synchronize import Barrier

import torch

from sizes import Size

PASSES = 3


def linear_shapes(size: Size, tp: int) -> list[tuple[int, int, int]]:
    """(inputs, outputs, how often) of the linear layers on one of `tp` ranks."""
    kv_size = size.kv_heads * size.hidden // size.heads
    return [
        (size.hidden, size.hidden // tp, size.layers),  # q, column-parallel
        (size.hidden, kv_size // tp, 2 * size.layers),  # k, v
        (size.hidden // tp, size.hidden, size.layers),  # o, row-parallel
        (size.hidden, size.ffn // tp, 2 * size.layers),  # gate, up
        (size.ffn // tp, size.hidden, size.layers),  # down
        (size.hidden, size.vocab // tp, 1),  # head
    ]


def _rank(size: Size, tp: int, dtype: torch.dtype, start: Barrier, times: multiprocessing.Queue) -> None:
    torch.set_num_threads(1)
    tokens = size.micro_batch * size.seq_len
    layers = [
        (torch.randn(tokens, inputs).to(dtype), torch.randn(outputs, inputs).to(dtype),
         torch.randn(tokens, outputs).to(dtype), count)
        for inputs, outputs, count in linear_shapes(size, tp)
    ]
    for index in range(1 + PASSES):  # the first warms up
        start.wait()
        begin = time.perf_counter()
        for x, weight, gradient, count in layers:
            for _ in range(count):
                torch.mm(x, weight.t())
                torch.mm(gradient, weight)
                torch.mm(gradient.t(), x)
        times.put((index, 1000 * (time.perf_counter() - begin)))


def step_floor_ms(size: Size, dtype: str, dp: int, tp: int) -> float:
    """In milliseconds: the slowest rank of a pass, median over passes."""
    torch_dtype = torch.bfloat16 if dtype == "bf16" else torch.float32
    context = multiprocessing.get_context("spawn")
    start, times = context.Barrier(dp * tp), context.Queue()
    ranks = [context.Process(target=_rank, args=(size, tp, torch_dtype, start, times)) for _ in range(dp * tp)]
    for rank in ranks:
        rank.start()
    slowest = [0.0] * (1 + PASSES)
    for _ in range(len(slowest) * len(ranks)):
        index, milliseconds = times.get(timeout=600)
        slowest[index] = max(slowest[index], milliseconds)
    for rank in ranks:
        rank.join()
    return statistics.median(slowest[1:])
