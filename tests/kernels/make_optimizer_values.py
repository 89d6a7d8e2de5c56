"""Makes tests/kernels/data/optimizers.json: what torch.optim makes of a few weights in four steps.

Run it with deps/peers/bin/python (launch/setup.sh --peers); the file is committed, so that optimizers_test
needs no Python. Gradients are clamped by torch.nn.utils.clip_grad_value_ where a case says so.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch

FILE = Path(__file__).resolve().parent / "data/optimizers.json"
STEPS = 4
SIZE = 19
ADAM = {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
CASES = {
    "adamw": (torch.optim.AdamW, ADAM, 0.0),
    "adamw, clipped by value": (torch.optim.AdamW, ADAM, 0.05),
    "adam": (torch.optim.Adam, ADAM, 0.0),
    "sgd": (torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.1}, 0.0),
    "sgd with momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}, 0.0),
    "sgd with nesterov": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, "nesterov": True}, 0.0),
    "sgd, clipped by value": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}, 0.05),
}
STATES = ("exp_avg", "exp_avg_sq", "momentum_buffer")


def main() -> None:
    generator = torch.Generator().manual_seed(5)
    start = torch.randn(SIZE, generator=generator, dtype=torch.float64)
    gradients = [0.1 * torch.randn(SIZE, generator=generator, dtype=torch.float64) for _ in range(STEPS)]
    for gradient in gradients:
        gradient[0] = 0.0  # only decays
    result = {"torch": torch.__version__, "start": start.tolist(), "gradients": [g.tolist() for g in gradients],
              "cases": {}}
    for name, (kind, options, clip_value) in CASES.items():
        weight = torch.nn.Parameter(start.clone())
        optimizer = kind([weight], foreach=False, **options)
        for gradient in gradients:
            weight.grad = gradient.clone()
            if clip_value:
                torch.nn.utils.clip_grad_value_([weight], clip_value)
            optimizer.step()
        state = optimizer.state[weight]
        result["cases"][name] = {"clip_grad_value": clip_value, "weight": weight.tolist(), **options,
                                 **{key: state[key].tolist() for key in STATES if state.get(key) is not None}}
    FILE.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
