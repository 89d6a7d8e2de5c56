"""The models that are measured, and the data both sides train on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    seq_len: int
    micro_batch: int  # sequences per data-parallel rank and step


SIZES = {
    "small": Size(hidden=256, ffn=704, layers=4, heads=8, kv_heads=4, vocab=256, seq_len=256, micro_batch=4),
    "medium": Size(hidden=768, ffn=2048, layers=8, heads=12, kv_heads=4, vocab=32000, seq_len=512, micro_batch=2),
    # 302M parameters, few tokens: what memory holds is model states.
    "large": Size(hidden=1024, ffn=2816, layers=21, heads=16, kv_heads=4, vocab=32000, seq_len=128, micro_batch=1),
}
