"""Model folders in other forms than transformers' own saves, and headers of safetensors files: what transformers and
its readers make of them, Tessera makes of them too.

Used by check_peers.py.
"""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import safetensors
import torch
import transformers
from safetensors.torch import load_file, save_file

import reference
import tessera
from megatron_index import read_tokens, sample

SEQ_LEN = 16
SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64,
         "initializer_range": 0.1, "tie_word_embeddings": False}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32, "vocab_size": 64, "initializer_range": 0.1,
        "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
KEPT = ("max_position_embeddings", "bos_token_id", "eos_token_id", "pad_token_id")


def edit_config(folder: Path, drop: tuple[str, ...] = (), **keys: object) -> None:
    path = folder / "config.json"
    config = {key: value for key, value in json.loads(path.read_text()).items() if key not in drop} | keys
    path.write_text(json.dumps(config))


def rename(folder: Path, new_name: Callable[[str], str]) -> None:
    path = folder / "model.safetensors"
    save_file({new_name(name): tensor for name, tensor in load_file(path).items()}, path, {"format": "pt"})


def base_model(folder: Path) -> None:
    transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).save_pretrained(folder)


def old_gpt2(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    tensors["lm_head.weight"] = tensors["wte.weight"].clone()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def other_index(folder: Path) -> None:
    """Beside the file an index of other weights, which nobody reads."""
    tensors = load_file(folder / "model.safetensors")
    save_file({name: 2 * tensor for name, tensor in tensors.items()}, folder / "model-00001-of-00001.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(tensors, "model-00001-of-00001.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def no_ids(folder: Path) -> None:
    edit_config(folder, drop=KEPT)


def older_llama3(**keys: object) -> Callable[[Path], None]:
    scaling = {key: value for key, value in LLAMA3.items()
               if key not in ("rope_theta", "original_max_position_embeddings")}
    return lambda folder: edit_config(folder, drop=("rope_parameters",), rope_theta=500.0, rope_scaling=scaling, **keys)


Llama, Mistral = transformers.LlamaConfig, transformers.MistralConfig
Qwen2, Qwen3, Gpt2 = transformers.Qwen2Config, transformers.Qwen3Config, transformers.GPT2Config
# Its configuration, what is done to its folder, and whether transformers reads the folder as it is then.
VARIANTS: dict[str, tuple[transformers.PreTrainedConfig, Callable[[Path], None], bool]] = {
    "a tied model without its head": (Llama(**SIZES | {"tie_word_embeddings": True}), base_model, True),
    "an old GPT-2 beside its head": (Gpt2(**GPT2), old_gpt2, True),
    "no kv heads in qwen2": (Qwen2(**SIZES | {"num_key_value_heads": 4}),
                             lambda folder: edit_config(folder, num_key_value_heads=None), True),
    "no kv heads in qwen3": (Qwen3(**SIZES | {"num_key_value_heads": 4, "head_dim": 8}),
                             lambda folder: edit_config(folder, num_key_value_heads=None), True),
    "llama3, its first length outside": (Llama(**SIZES, rope_parameters=LLAMA3, max_position_embeddings=64),
                                         older_llama3(original_max_position_embeddings=16), True),
    "llama3, its first length the longest context": (
        Llama(**SIZES, rope_parameters=LLAMA3 | {"original_max_position_embeddings": 64}, max_position_embeddings=64),
        older_llama3(), True),
    "swish": (Llama(**SIZES, hidden_act="silu"), lambda folder: edit_config(folder, hidden_act="swish"), True),
    "biases of attention in llama": (Llama(**SIZES, attention_bias=True), lambda folder: None, True),
    "biases of attention in qwen3": (Qwen3(**SIZES, num_key_value_heads=2, head_dim=16, attention_bias=True),
                                     lambda folder: None, True),
    "a file beside an index": (Llama(**SIZES), other_index, True),
    "no ids in llama": (Llama(**SIZES), no_ids, True),
    "no ids in mistral": (Mistral(**SIZES, num_key_value_heads=2, sliding_window=4), no_ids, True),
    "no ids in qwen2": (Qwen2(**SIZES, num_key_value_heads=2), no_ids, True),
    "names of a wrapped model": (
        Qwen2(**SIZES, num_key_value_heads=2),
        lambda folder: rename(folder, lambda name: "_orig_mod.module." + name.replace(
            "mlp.", "_checkpoint_wrapped_module.mlp.")), False),
}


def logits(folder: Path) -> torch.Tensor:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return reference.logits_of(model, torch.arange(2 * SEQ_LEN).reshape(2, SEQ_LEN) % SIZES["vocab_size"])


def loss_of(folder: Path, data: Path, ids: list[int]) -> float:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    stream = read_tokens(data)
    tokens = torch.stack([torch.from_numpy(sample(stream, i, SEQ_LEN)) for i in ids])
    found = reference.logits_of(model, tokens[:, :-1])
    return torch.nn.functional.cross_entropy(found.flatten(0, 1), tokens[:, 1:].flatten()).item()


def kept(folder: Path) -> dict[str, object]:
    config = transformers.AutoConfig.from_pretrained(folder)
    return {key: getattr(config, key, None) for key in KEPT}


def one_step(model_config: Path, data: Path, folder: Path, **checkpoint: object) -> dict:
    """One step that changes nothing; its line of the metrics."""
    folder.mkdir(parents=True, exist_ok=True)
    return tessera.train({
        "model": {"config": str(model_config)}, "data": {"train": [str(data)], "seq_len": SEQ_LEN},
        "training": {"steps": 1, "global_batch_size": 4, "log_samples": True},
        "optimizer": {"lr": 1e-30, "weight_decay": 0.0}, "checkpoint": checkpoint}, folder, ranks=1)[0]


def check_variant(checks, name: str, data: Path, folder: Path) -> None:
    config, change, readable = VARIANTS[name]
    torch.manual_seed(5)
    model = transformers.AutoModelForCausalLM.from_config(config).float()
    with torch.no_grad():  # every weight matters, biases too
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    original, changed, step_dir, exported = (folder / part for part in ("original", "changed", "step", "exported"))
    model.save_pretrained(original)
    shutil.copytree(original, changed)
    change(changed)
    read = changed if readable else original
    wanted = logits(read)
    if "no ids" not in name:
        checks.true(f"{name}: the change is one of form", torch.equal(wanted, logits(original)))
    tessera.run("checkpoint", "import", changed, step_dir)
    tessera.run("checkpoint", "consolidate", step_dir, exported)
    checks.true(f"{name}: logits of the export, bit for bit", torch.equal(wanted, logits(exported)))
    line = one_step(changed / "config.json", data, folder / "trained", init_from=str(step_dir))
    checks.below(f"{name}: loss of the first step",
                 reference.relative(line["loss"], loss_of(read, data, line["samples"])), 1e-5)
    direct = one_step(changed / "config.json", data, folder / "direct", init_from=str(changed))
    checks.true(f"{name}: the same loss without an import", direct["loss"] == line["loss"])
    for run, start in ("trained", "weights"), ("fresh", "random weights"):
        if run == "fresh":
            one_step(changed / "config.json", data, folder / run, resume="none")
        out = folder / f"{run}-exported"
        tessera.run("checkpoint", "consolidate", tessera.newest_step(folder / run / "run"), out)
        checks.true(f"{name}: longest context and ids, trained from {start}: {kept(out)}", kept(out) == kept(read))


ENTRY = '"model.norm.weight":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'
HEADERS = {
    "plain": "{" + ENTRY + "}", "spaces": " \n{" + ENTRY + "}\t\r\n  ", "a form feed": "{" + ENTRY + "}\f",
    "a vertical tab": "{" + ENTRY + "}\v", "NUL behind": "{" + ENTRY + "}\0\0", "NUL and more": "{" + ENTRY + "}\0x",
    "NUL inside": "{\0" + ENTRY + "}", "a byte-order mark": "\ufeff{" + ENTRY + "}",
    "a byte-order mark behind": "{" + ENTRY + "}\ufeff", "a no-break space": "{\u00a0" + ENTRY + "}",
    "null metadata": '{"__metadata__":null,' + ENTRY + "}", "null metadata last": "{" + ENTRY + ',"__metadata__":null}',
    "empty metadata": '{"__metadata__":{},' + ENTRY + "}", "metadata": '{"__metadata__":{"a":"b"},' + ENTRY + "}",
    "a null in the metadata": '{"__metadata__":{"a":null},' + ENTRY + "}",
    "a number in the metadata": '{"__metadata__":{"a":1},' + ENTRY + "}",
    "a list as metadata": '{"__metadata__":[],' + ENTRY + "}", "a text as metadata": '{"__metadata__":"x",' + ENTRY + "}",
    "metadata twice": '{"__metadata__":{},"__metadata__":{},' + ENTRY + "}",
    "a comma too many": "{" + ENTRY + ",}", "a comment": "{/**/" + ENTRY + "}", "two values": "{" + ENTRY + "}{}",
    "single quotes": "{" + ENTRY.replace('"', "'") + "}", "nothing": "", "a list": "[]", "null": "null",
    "null for a tensor": '{"t":null}', "a number for a tensor": '{"t":1}',
    "a dtype in small letters": "{" + ENTRY.replace("F32", "f32") + "}",
    "an escaped dtype": "{" + ENTRY.replace("F32", "\\u004632") + "}",
    "an unknown dtype": "{" + ENTRY.replace("F32", "F33") + "}",
    "a null dtype": "{" + ENTRY.replace('"F32"', "null") + "}",
    "no offsets": '{"t":{"dtype":"F32","shape":[2]}}', "a field twice": "{" + ENTRY.replace("{", '{"dtype":"F32",') + "}",
    "a fraction": "{" + ENTRY.replace("[2]", "[2.0]") + "}", "an exponent": "{" + ENTRY.replace("[2]", "[2e0]") + "}",
    "minus zero": "{" + ENTRY.replace("[0,8]", "[-0,8]") + "}", "a plus": "{" + ENTRY.replace("[2]", "[+2]") + "}",
    "a leading zero": "{" + ENTRY.replace("[2]", "[02]") + "}", "NaN": "{" + ENTRY.replace("[2]", "[NaN]") + "}",
    "three offsets": "{" + ENTRY.replace("[0,8]", "[0,8,8]") + "}", "one offset": "{" + ENTRY.replace("[0,8]", "[8]") + "}",
    "end before begin": "{" + ENTRY.replace("[0,8]", "[8,0]") + "}", "a hole": "{" + ENTRY.replace("[0,8]", "[4,12]") + "}",
    "bytes behind": "{" + ENTRY.replace("[2]", "[1]").replace("[0,8]", "[0,4]") + "}",
    "past the end": "{" + ENTRY.replace("[2]", "[3]").replace("[0,8]", "[0,12]") + "}",
    "another shape": "{" + ENTRY.replace("[2]", "[3]") + "}",
    "an overflow": "{" + ENTRY.replace("[2]", "[4294967296,4294967296,0]").replace("[0,8]", "[0,0]") + "}",
    "a raw control character": "{" + ENTRY.replace("norm", "no\x01rm") + "}",
    "half a surrogate pair": "{" + ENTRY.replace("norm", "no\\ud800rm") + "}",
    "a bad escape": "{" + ENTRY.replace("norm", "no\\qrm") + "}",
    "no elements behind": "{" + ENTRY + ',"t":{"dtype":"F32","shape":[0,4],"data_offsets":[8,8]}}',
    "no elements inside": "{" + ENTRY + ',"t":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}}',
}
HEADER_BYTES = {"not UTF-8": b'{"\xff":1}', "an overlong NUL": b'{"a\xc0\x80":1}', "a raw surrogate": b'{"a\xed\xa0\x80":1}'}


def check_headers(checks, folder: Path) -> None:
    """Tessera refuses every header that the reference refuses, and takes what it takes."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(Llama(**SIZES).to_dict()))
    data = struct.pack("<2f", 1.0, 2.0)
    for name, header in (HEADERS | HEADER_BYTES).items():
        text = header if isinstance(header, bytes) else header.encode()
        content = struct.pack("<Q", len(text)) + text + data
        try:
            safetensors.deserialize(content)
            taken = True
        except safetensors.SafetensorError:
            taken = False
        (folder / "model.safetensors").write_bytes(content)
        done = subprocess.run([tessera.binary(), "checkpoint", "import", folder, folder.parent / "none"],
                              env=tessera.environment(), capture_output=True, text=True, errors="replace")
        # The model needs more tensors than the file has: a header that is read ends with that.
        ours = "[safetensors]" not in done.stderr
        checks.true(f"headers: {name}: {'taken' if taken else 'refused'} by both: {done.stderr.strip()[-80:]!r}",
                    done.returncode == 2 and ours == taken)
