"""Makes tests/golden/models: for every model with a Hugging Face form a tiny one as transformers saves it, and what
transformers computes with it: the logarithms of all probabilities, and the gradient of every weight.

Run it with deps/peers/bin/python (launch/setup.sh --peers); the files are committed, so that hf_parity_test needs
neither Python nor transformers. Heads, kv heads and vocabularies are such that tp 4 splits some unevenly.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.utils import logging

logging.disable_progress_bar()
FOLDER = Path(__file__).resolve().parent / "models"
BATCH, SEQ_LEN, VOCAB = 2, 8, 50
DECODER = {
    "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": VOCAB, "max_position_embeddings": 16, "initializer_range": 0.1,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "tie_word_embeddings": False,
}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 16, "vocab_size": VOCAB, "initializer_range": 0.1,
        "bos_token_id": None, "eos_token_id": None}
MODELS = {
    "llama": transformers.LlamaConfig(**DECODER),
    "llama3-tied": transformers.LlamaConfig(
        **DECODER | {"rope_parameters": LLAMA3, "tie_word_embeddings": True, "num_key_value_heads": 1,
                     "max_position_embeddings": 256}),
    "llama-bias": transformers.LlamaConfig(**DECODER, attention_bias=True),
    "mistral": transformers.MistralConfig(**DECODER, sliding_window=3, head_dim=16),
    "qwen2": transformers.Qwen2Config(**DECODER),
    "qwen3": transformers.Qwen3Config(**DECODER, head_dim=16),
    "phi3": transformers.Phi3Config(**DECODER, sliding_window=5),
    "gpt2": transformers.GPT2Config(**GPT2),
}


def make(name: str, config: transformers.PretrainedConfig) -> None:
    torch.manual_seed(7)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():  # every weight matters
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)

    tokens = torch.randint(VOCAB, (BATCH, SEQ_LEN + 1))
    targets = tokens[:, 1:]
    logits = model(tokens[:, :-1], use_cache=False).logits
    log_probabilities = logits.log_softmax(-1)
    loss = torch.nn.functional.nll_loss(log_probabilities.flatten(0, 1), targets.flatten())
    loss.backward()
    save_file({"tokens": tokens[:, :-1].to(torch.int32).contiguous(), "targets": targets.to(torch.int32).contiguous(),
               "log_probabilities": log_probabilities.detach().flatten(0, 1).contiguous()},
              folder / "expected.safetensors")
    gradients = {key: value.grad for key, value in model.named_parameters()}
    names = load_file(folder / "model.safetensors").keys()
    save_file({key: gradients[key].contiguous() for key in names}, folder / "gradients.safetensors")
    print(f"{name}: loss {loss.item():.4f}, {sum(p.numel() for p in model.parameters())} parameters")


if __name__ == "__main__":
    for model_name, model_config in MODELS.items():
        make(model_name, model_config)
