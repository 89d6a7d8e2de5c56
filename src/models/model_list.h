#pragma once

#include <memory>

#include "models/model.h"

namespace tessera {

// Llama 2 and 3.x (with the scaling of its rotary positions), TinyLlama, SmolLM.
std::unique_ptr<Model> make_llama_model();
// Llama with a sliding window.
std::unique_ptr<Model> make_mistral_model();
// Llama with biases of q, k and v (Qwen2, Qwen2.5).
std::unique_ptr<Model> make_qwen2_model();
// Llama with RMSNorm of each head of q and k.
std::unique_ptr<Model> make_qwen3_model();
// Llama whose files hold q, k, v and gate, up in one matrix each.
std::unique_ptr<Model> make_phi3_model();

// GPT-2: LayerNorm, learned positions, biases everywhere.
std::unique_ptr<Model> make_gpt2_model();

// ViT with a classifier on the class token.
std::unique_ptr<Model> make_vit_model();
// The encoder-decoder of the original paper, as torch.nn.Transformer.
std::unique_ptr<Model> make_transformer_model();

}  // namespace tessera
