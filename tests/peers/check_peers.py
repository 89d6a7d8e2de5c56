"""Compares Tessera with PyTorch and transformers, live, on the same weights and samples.

For a model with as many kv heads as heads, one with fewer and one with tied embeddings: import a random
Hugging Face model, train 20 steps at tp 2 x dp 2, train the same model in plain PyTorch, and compare every
loss, gradient norm and weight, and the logits of the exported folder. Import followed by export must keep
every bit. A ViT's export with its image processor must give the run's own validation loss. Folders in other forms
than transformers' own saves, and headers of safetensors files, are read as transformers reads them (imports.py).
Checkpoints of several meshes are read by Python (checkpoints.py). Prints what it measured; exits with 1 if anything is
off.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import AutoImageProcessor, LlamaForCausalLM, ViTForImageClassification

import checkpoints
import imports
import reference
import tessera
from megatron_index import read_tokens, write_tokens

STEPS = 20
SEQ_LEN = 32
BATCH = 6  # with micro-batches of 2 on 2 data-parallel ranks: one of the four micro-batches has no sample
SAMPLES = 50  # 20 batches of 6 need more than two epochs
TOLERANCE = 1e-4  # of losses, norms, weights and logits: fp32 sums in another order, 20 AdamW steps long
OPTIMIZER = reference.AdamW(lr=2e-3)

SIZES = {"hidden_size": 64, "intermediate_size": 176, "vocab_size": 256, "num_attention_heads": 4,
         "tie_word_embeddings": False, "max_position_embeddings": 64}
MODELS = {
    "multi-head": SIZES | {"num_hidden_layers": 2, "num_key_value_heads": 4, "rope_theta": 10000.0},
    "grouped-query": SIZES | {"num_hidden_layers": 3, "num_key_value_heads": 2, "rope_theta": 500.0},
    "tied": SIZES | {"num_hidden_layers": 2, "num_key_value_heads": 4, "rope_theta": 10000.0,
                     "tie_word_embeddings": True},
}


def worst(values: Iterable[float]) -> float:
    """The largest, or NaN if one is NaN (Python's max loses it)."""
    values = list(values)
    return math.nan if any(map(math.isnan, values)) else max(values)


class Checks:
    """Counts and prints; a NaN is not below any limit."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed = 0

    def below(self, what: str, value: float, limit: float) -> None:
        self._count(value <= limit, f"{what}: {value:.2e} (at most {limit:g})")

    def true(self, what: str, holds: bool) -> None:
        self._count(holds, what)

    def _count(self, holds: bool, text: str) -> None:
        self.passed += holds
        self.failed += not holds
        print(f"  {'ok    ' if holds else 'FAILED'} {text}", flush=True)


def training_config(data: Path, model_config: Path, step_dir: Path) -> dict:
    return {
        "run": {"seed": 7},
        "model": {"config": str(model_config)},
        "parallel": {"tp": 2, "dp_shard": 2, "dp_replicate": 1, "zero": 3},
        "precision": {"params": "fp32", "reduce": "fp32"},
        "data": {"train": [str(data)], "seq_len": SEQ_LEN},
        "training": {"steps": STEPS, "global_batch_size": BATCH, "micro_batch_size": 2,
                     "clip_grad_norm": OPTIMIZER.clip_grad_norm, "log_samples": True},
        "optimizer": {"type": "adamw", "lr": OPTIMIZER.lr, "betas": list(OPTIMIZER.betas), "eps": OPTIMIZER.eps,
                      "weight_decay": OPTIMIZER.weight_decay},
        "schedule": {"type": "cosine", "warmup_steps": 5, "min_lr_ratio": 0.1},
        "checkpoint": {"resume": "none", "init_from": str(step_dir)},
    }


def check_round_trip(checks: Checks, original: Path, step_dir: Path, folder: Path) -> None:
    """Import and export without a step in between: the same bits, and a folder that transformers loads."""
    exported = folder / "round-trip"
    tessera.run("checkpoint", "consolidate", step_dir, exported)
    before, after = load_file(original / "model.safetensors"), load_file(exported / "model.safetensors")
    checks.true(f"round trip: the same {len(before)} tensors", before.keys() == after.keys())
    same = all(torch.equal(before[name], after[name]) for name in before.keys() & after.keys())
    checks.true("round trip: every tensor is bit-identical", same)
    prompt = torch.arange(2 * SEQ_LEN).reshape(2, SEQ_LEN) % SIZES["vocab_size"]
    first, second = (reference.logits_of(load_model(path), prompt) for path in (original, exported))
    checks.true("round trip: transformers gives bit-identical logits", torch.equal(first, second))


def check_training(checks: Checks, original: Path, step_dir: Path, data: Path, folder: Path) -> None:
    config = training_config(data, original / "config.json", step_dir)
    metrics = tessera.train(config, folder, ranks=4)
    checks.true(f"training: {len(metrics)} steps are in metrics.jsonl",
                [line["step"] for line in metrics] == list(range(1, STEPS + 1)))
    lrs = [line["lr"] for line in metrics]
    checks.below("training: the highest lr is the configured one", reference.relative(max(lrs), OPTIMIZER.lr), 1e-12)
    batches = [line["samples"] for line in metrics]
    checks.true("training: every batch has its own samples", all(len(set(b)) == BATCH for b in batches))

    model = load_model(original)
    stream = read_tokens(data)
    curve = reference.train(model, stream, SEQ_LEN, batches, lrs, OPTIMIZER)
    print(f"         loss {curve.loss[0]:.4f} -> {curve.loss[-1]:.4f}, gradient norms "
          f"{min(curve.grad_norm):.2f} to {max(curve.grad_norm):.2f}")
    checks.true("training: there was something to learn and to clip",
                curve.loss[-1] < 0.9 * curve.loss[0] and max(curve.grad_norm) > OPTIMIZER.clip_grad_norm)
    for name, wanted in (("loss", curve.loss), ("grad_norm", curve.grad_norm)):
        distance = worst(reference.relative(line[name], value) for line, value in zip(metrics, wanted, strict=True))
        checks.below(f"training: relative difference of {name}, worst of {STEPS} steps", distance, TOLERANCE)

    exported = folder / "exported"
    tessera.run("checkpoint", "consolidate", tessera.newest_step(folder / "run"), exported)
    weights = dict(model.named_parameters())
    stored = load_file(exported / "model.safetensors")
    checks.true("export: names are those of transformers", stored.keys() == weights.keys())
    distances = {name: reference.weight_distance(stored[name], weights[name].detach(), OPTIMIZER.lr, STEPS)
                 for name in weights.keys() & stored.keys()}
    checks.below(f"export: weights, worst of {len(distances)} ({max(distances, key=distances.get)})",
                 worst(distances.values()), TOLERANCE)
    prompt = torch.from_numpy(reference.make_tokens(99, SEQ_LEN, SIZES["vocab_size"])).unsqueeze(0)
    distance = reference.logits_distance(reference.logits_of(load_model(exported), prompt),
                                         reference.logits_of(model, prompt))
    checks.below("export: logits of transformers on the exported folder", distance, TOLERANCE)


def check_images(checks: Checks, folder: Path) -> None:
    """A ViT trained from YAML: transformers' processor and model on the export give the run's validation loss."""
    generator = torch.Generator().manual_seed(3)
    pixels = torch.randint(0, 256, (40, 3, 8, 8), generator=generator, dtype=torch.uint8)
    labels = torch.randint(0, 5, (40,), generator=generator)
    data = folder / "images.safetensors"
    save_file({"images": pixels, "labels": labels}, data)
    mean, std = [0.1, 0.2, 0.3], [0.2, 0.3, 0.25]
    tessera.train({
        "model": {"type": "vit", "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2,
                  "num_attention_heads": 4, "image_size": 8, "patch_size": 2, "num_labels": 5,
                  "initializer_range": 0.3},
        "data": {"kind": "images", "train": [str(data)], "valid": [str(data)], "mean": mean, "std": std},
        "training": {"steps": 1, "global_batch_size": 40, "micro_batch_size": 10},
        "optimizer": {"lr": 1e-3}, "eval": {"every": 1, "batches": 4}}, folder, ranks=1)
    metrics = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    exported = folder / "exported"
    tessera.run("checkpoint", "consolidate", tessera.newest_step(folder / "run"), exported)
    processor = AutoImageProcessor.from_pretrained(exported)
    images = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in pixels]
    inputs = processor(images, return_tensors="pt")["pixel_values"]
    wanted = (pixels.double() / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    checks.below("images: pixels of the exported processor", (inputs - wanted).abs().max().item(), 1e-5)
    with torch.no_grad():
        logits = ViTForImageClassification.from_pretrained(exported).eval()(inputs).logits
    loss = torch.nn.functional.cross_entropy(logits, labels).item()
    evaluated = next(line["eval_loss"] for line in metrics if "eval_loss" in line)
    checks.below("images: loss of transformers on the exported folder", reference.relative(loss, evaluated), TOLERANCE)


def load_model(folder: Path) -> LlamaForCausalLM:
    model, info = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    wrong = {key: value for key, value in info.items() if value}
    if wrong:
        raise RuntimeError(f"transformers does not load {folder} as it is: {wrong}")
    return model.eval()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    checks = Checks()
    for name in arguments.models:
        with tempfile.TemporaryDirectory(prefix="tessera-peers-") as temporary:
            folder = Path(temporary)
            print(f"{name}: {MODELS[name]}", flush=True)
            original, step_dir, data = folder / "original", folder / "imported", folder / "tokens"
            reference.make_model(seed=1, **MODELS[name]).save_pretrained(original)
            tokens = reference.make_tokens(seed=2, count=SAMPLES * SEQ_LEN + 1, vocab_size=SIZES["vocab_size"])
            # Two documents that end nowhere near a sample's edge: the stream runs on across them.
            write_tokens(data, [tokens[:777].astype("uint16"), tokens[777:].astype("uint16")])
            try:
                tessera.run("checkpoint", "import", original, step_dir)
                check_round_trip(checks, original, step_dir, folder)
                check_training(checks, original, step_dir, data, folder)
            except (RuntimeError, OSError, KeyError) as error:  # the next model is still worth a look
                checks.true(f"runs to its end: {error!r}".replace("\\n", "\n"), False)
    with tempfile.TemporaryDirectory(prefix="tessera-peers-") as temporary:
        print("images: ViT", flush=True)
        try:
            check_images(checks, Path(temporary))
        except (RuntimeError, OSError, KeyError) as error:
            checks.true(f"runs to its end: {error!r}".replace("\\n", "\n"), False)
    with tempfile.TemporaryDirectory(prefix="tessera-peers-") as temporary:
        print("imports: other forms of folders and files", flush=True)
        data = Path(temporary) / "tokens"
        write_tokens(data, [reference.make_tokens(3, 40 * imports.SEQ_LEN + 1, imports.SIZES["vocab_size"]).astype("uint16")])
        for name in imports.VARIANTS:
            try:
                folder = Path(temporary) / name.replace(" ", "-")
                folder.mkdir()
                imports.check_variant(checks, name, data, folder)
            except (RuntimeError, OSError, KeyError, ValueError) as error:
                checks.true(f"{name}: runs to its end: {error!r}".replace("\\n", "\n"), False)
        imports.check_headers(checks, Path(temporary) / "headers")
    with tempfile.TemporaryDirectory(prefix="tessera-peers-") as temporary:
        print("checkpoints: read by Python", flush=True)
        try:
            checkpoints.check_checkpoints(checks, Path(temporary))
        except (RuntimeError, OSError, KeyError, ValueError) as error:
            checks.true(f"runs to its end: {error!r}".replace("\\n", "\n"), False)
    print(f"peers: {checks.passed} passed, {checks.failed} failed "
          f"(torch {torch.__version__})", flush=True)
    return 1 if checks.failed or not checks.passed else 0


if __name__ == "__main__":
    sys.exit(main())
