"""Makes tests/golden/data: a tiny model, its tokens, and what plain PyTorch makes of them in 20 steps.

Run it with deps/peers/bin/python (launch/setup.sh --peers); the files are committed, so that golden_test
needs neither Python nor transformers. The global batch is the whole data set: which samples a step takes
is then known without Tessera's permutation, only their order is not, and the loss does not depend on it.
"""

from __future__ import annotations

import json
import math
import platform
import shutil
import sys
from pathlib import Path

import numpy
import torch
import transformers
from safetensors.torch import save_file

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "peers"))
import reference  # noqa: E402
from megatron_index import read_tokens, write_tokens  # noqa: E402

STEPS = 20
WARMUP = 4
MIN_LR_RATIO = 0.1
SEQ_LEN = 16
SAMPLES = 12
OPTIMIZER = reference.AdamW(lr=5e-3)
MODEL = {"hidden_size": 32, "intermediate_size": 88, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 128, "rope_theta": 1000.0, "max_position_embeddings": 32,
         "tie_word_embeddings": False}


def learning_rate(step: int) -> float:
    """Of step 1, 2, ...: a line from zero to the peak at step WARMUP, then a cosine down to the last step."""
    if step <= WARMUP:
        return OPTIMIZER.lr * step / WARMUP
    cosine = 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP)))
    return OPTIMIZER.lr * (MIN_LR_RATIO + (1 - MIN_LR_RATIO) * cosine)


def main() -> None:
    torch.set_num_threads(1)
    data = FOLDER / "data"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir()
    model = reference.make_model(seed=3, **MODEL)
    model.save_pretrained(data / "model")
    (data / "model/generation_config.json").unlink(missing_ok=True)  # of no use to training
    tokens = reference.make_tokens(seed=4, count=SAMPLES * SEQ_LEN + 1, vocab_size=MODEL["vocab_size"])
    write_tokens(data / "tokens", [tokens[:50].astype("uint8"), tokens[50:].astype("uint8")])

    lrs = [learning_rate(step) for step in range(1, STEPS + 1)]
    batch = list(range(SAMPLES))
    curve = reference.train(model, read_tokens(data / "tokens"), SEQ_LEN, [batch] * STEPS, lrs, OPTIMIZER)
    final = {name: weight.detach().contiguous() for name, weight in model.named_parameters()}
    save_file(final, data / "final.safetensors")
    expected = {
        "made_by": {"script": "tests/golden/make_golden.py", "python": platform.python_version(),
                    "torch": torch.__version__, "transformers": transformers.__version__,
                    "numpy": numpy.__version__},
        "steps": STEPS, "seq_len": SEQ_LEN, "samples": SAMPLES, "vocab_size": MODEL["vocab_size"],
        "optimizer": {"lr": OPTIMIZER.lr, "betas": OPTIMIZER.betas, "eps": OPTIMIZER.eps,
                      "weight_decay": OPTIMIZER.weight_decay, "clip_grad_norm": OPTIMIZER.clip_grad_norm},
        "schedule": {"type": "cosine", "warmup_steps": WARMUP, "min_lr_ratio": MIN_LR_RATIO},
        "lr": lrs, "loss": curve.loss, "grad_norm": curve.grad_norm,
    }
    (data / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
