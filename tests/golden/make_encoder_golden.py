"""Makes tests/golden/data/vit and data/transformer*: tiny models with batches, log-probabilities, losses and every
gradient, by transformers' ViTForImageClassification and torch.nn.Transformer in fp32.

Run it with deps/peers/bin/python (launch/setup.sh --peers); the files are committed, so that encoder_golden_test
needs neither. Each folder holds weights.safetensors, grads.safetensors (both by our names) and batch.safetensors,
in which `log_probabilities` [targets, classes] stand for the logits (which a softmax knows up to a constant).
"""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import ViTConfig, ViTForImageClassification

DATA = Path(__file__).resolve().parent / "data"
PAD, BOS, EOS = 0, 1, 2


def randomise(model: nn.Module, seed: int) -> None:
    """Every weight matters: biases and norms are no zeros and ones."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator) * 0.2
            weight.copy_(noise + (1.0 if "norm" in name and name.endswith("weight") else 0.0))


def save(folder: Path, weights: dict, grads: dict, batch: dict, config: dict) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, tensors in (("weights", weights), ("grads", grads), ("batch", batch)):
        save_file({key: value.detach().contiguous() for key, value in tensors.items()},
                  folder / f"{name}.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def vit_file_name(name: str) -> str:
    """A parameter's name in ViTForImageClassification -> in its files."""
    name = re.sub(r"^vit\.layers\.", "vit.encoder.layer.", name)
    for ours, theirs in (("q_proj", "attention.query"), ("k_proj", "attention.key"), ("v_proj", "attention.value"),
                         ("o_proj", "output.dense")):
        name = name.replace(f".attention.{ours}.", f".attention.{theirs}.")
    return name.replace(".mlp.fc1.", ".intermediate.dense.").replace(".mlp.fc2.", ".output.dense.")


def make_vit(folder: Path) -> None:
    # 6 images of 10 tokens: 4 ranks hold one and a half each under sequence parallelism.
    sizes = {"image_size": 12, "patch_size": 4, "num_channels": 2, "hidden_size": 32, "intermediate_size": 48,
             "num_hidden_layers": 2, "num_attention_heads": 4, "layer_norm_eps": 1e-12}
    model = ViTForImageClassification(ViTConfig(**sizes, num_labels=10, hidden_act="gelu"))
    randomise(model, 1)
    images = torch.randn(6, 2, 12, 12, generator=torch.Generator().manual_seed(2))
    targets = torch.tensor([3, 9, 0, 5, 1, 3])
    weights = torch.tensor([0.25, 0.125, 0.25, 0.125, 0.125, 0.125])
    logits = model(pixel_values=images).logits
    loss = (F.cross_entropy(logits, targets, reduction="none") * weights).sum()
    loss.backward()
    values = {vit_file_name(name): value for name, value in model.named_parameters()}
    model.save_pretrained(folder.parent / "vit-files")
    files = load_file(folder.parent / "vit-files/model.safetensors")
    shutil.rmtree(folder.parent / "vit-files")
    assert values.keys() == files.keys() and all(torch.equal(values[n], files[n]) for n in files)
    grads = {vit_file_name(name): value.grad for name, value in model.named_parameters()}
    save(folder, values, grads,
         {"images": images, "targets": targets[:, None], "weights": weights[:, None], "loss": loss,
          "log_probabilities": logits.log_softmax(-1)}, sizes | {"num_labels": 10})


class Seq2Seq(nn.Module):
    def __init__(self, config: dict) -> None:
        super().__init__()
        width = config["d_model"]
        keys = ("d_model", "nhead", "num_encoder_layers", "num_decoder_layers", "dim_feedforward", "activation",
                "norm_first", "layer_norm_eps")
        self.transformer = nn.Transformer(**{k: config[k] for k in keys}, dropout=0.0, batch_first=True)
        self.source = nn.Embedding(config["vocab_size"], width)
        tied = config["tie_word_embeddings"]
        self.target = self.source if tied else nn.Embedding(config["vocab_size"], width)
        self.output = nn.Linear(width, config["vocab_size"], bias=False)
        if tied:
            self.output.weight = self.source.weight

    def embed(self, table: nn.Embedding, tokens: torch.Tensor) -> torch.Tensor:
        width = table.embedding_dim
        position = torch.arange(tokens.shape[1])[:, None]
        frequency = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        places = torch.zeros(tokens.shape[1], width)
        places[:, 0::2] = torch.sin(position * frequency)
        places[:, 1::2] = torch.cos(position * frequency)
        return table(tokens) * math.sqrt(width) + places

    def forward(self, source: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        padding = source == PAD
        hidden = self.transformer(
            self.embed(self.source, source), self.embed(self.target, tokens),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(tokens.shape[1]),
            src_key_padding_mask=padding, memory_key_padding_mask=padding,
            tgt_key_padding_mask=torch.zeros(tokens.shape).masked_fill_(tokens == PAD, -torch.inf))
        return self.output(hidden)


def seq2seq_names(model: Seq2Seq, tied: bool) -> dict[str, torch.Tensor]:
    """By our names; in_proj is cut into the projections that it is made of. Works on values and on gradients."""
    tensors = {}
    for name, value in model.items():
        name = name.removeprefix("transformer.")
        name = {"source.weight": "shared.weight" if tied else "encoder.embed_tokens.weight",
                "target.weight": "decoder.embed_tokens.weight", "output.weight": "lm_head.weight"}.get(name, name)
        if "in_proj_" in name:
            kind = name.rsplit("_", 1)[1]
            for part, piece in zip("qkv", value.chunk(3), strict=True):
                tensors[name.replace(f"in_proj_{kind}", f"{part}_proj.{kind}")] = piece.clone()
        else:
            tensors[name] = value
    return tensors


def make_seq2seq(folder: Path, **changes: object) -> None:
    config = {"d_model": 32, "nhead": 4, "num_encoder_layers": 2, "num_decoder_layers": 2, "dim_feedforward": 48,
              "activation": "relu", "norm_first": False, "layer_norm_eps": 1e-5, "vocab_size": 18,
              "tie_word_embeddings": False} | changes
    model = Seq2Seq(config)
    randomise(model, 3)
    model.train()  # in evaluation PyTorch takes another path for padded rows; there is no dropout
    # 3 x 8 and 3 x 4 tokens: 4 ranks hold parts of samples under sequence parallelism.
    source = torch.tensor([[3, 4, 5, 6, 7, 14, 15, EOS], [8, 9, EOS, PAD, PAD, PAD, PAD, PAD],
                           [10, 11, 12, 13, EOS, PAD, PAD, PAD]])
    tokens = torch.tensor([[BOS, 7, 6, 5], [BOS, 9, 8, PAD], [BOS, 13, PAD, PAD]])
    targets = torch.tensor([[7, 6, 5, EOS], [9, 8, EOS, PAD], [13, EOS, PAD, PAD]])
    weights = (targets != PAD).float() / (targets != PAD).sum()
    logits = model(source, tokens)
    loss = (F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none") * weights.flatten()).sum()
    loss.backward()
    tied = config["tie_word_embeddings"]
    parameters = dict(model.named_parameters())
    values = seq2seq_names(parameters, tied)
    grads = seq2seq_names({name: value.grad for name, value in model.named_parameters()}, tied)
    save(folder, values, grads,
         {"source": source, "source_lengths": (source != PAD).sum(1), "tokens": tokens, "targets": targets,
          "weights": weights, "loss": loss, "log_probabilities": logits.log_softmax(-1).flatten(0, 1)}, config)
    # As consolidate writes it: torch.nn.Transformer's state_dict with embeddings and output by our names.
    inner = model.transformer.state_dict()
    outer = {name: value for name, value in values.items() if name.endswith(("embed_tokens.weight", "shared.weight",
                                                                            "lm_head.weight"))}
    assert len(inner) + len(outer) == len(parameters)
    save_file({name: value.detach().contiguous() for name, value in (inner | outer).items()},
              folder / "files.safetensors")


def main() -> None:
    torch.set_num_threads(1)
    make_vit(DATA / "vit")
    make_seq2seq(DATA / "transformer")
    make_seq2seq(DATA / "transformer-norm-first", norm_first=True, activation="gelu", tie_word_embeddings=True)


if __name__ == "__main__":
    sys.exit(main())
