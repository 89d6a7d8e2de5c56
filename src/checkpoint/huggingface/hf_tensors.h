#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/format/pieces.h"

namespace tessera {

// A tensor of a Hugging Face file that is not simply one of ours.
struct HfTensor {
  std::string name;                // in the file
  std::vector<std::string> parts;  // our tensors, one below the other (joined along dim 0)
  bool transposed = false;         // the file holds the joined matrix as [columns, rows]
};

// How the tensors of a model's Hugging Face files follow from ours. The default: name by name.
struct HfTensors {
  // The class of transformers, put into a config.json that names none.
  std::string architecture;
  std::vector<HfTensor> tensors;  // those that differ
  // With tied embeddings: `head` needs no tensor of its own in a file; if a file holds one beside
  // `embedding`, the two must be equal.
  struct Tied {
    std::string head;
    std::string embedding;
  };
  std::optional<Tied> tied;
  // A model that was saved without its head has the names of its tensors without `base_prefix`, and
  // its files lack the parameter `head`. Both empty: there is no such form.
  std::string base_prefix;
  std::string head;
  // Name endings of tensors that old files hold and that are not read, since they follow from the
  // configuration: rotary frequencies, causal masks.
  std::vector<std::string> ignored;
};

// What a model knows about Hugging Face folders that hold it.
struct HfModel {
  HfTensors tensors;
  std::vector<TensorInfo> parameters;  // all, as checkpoints name them; empty: those of the files
};

}  // namespace tessera
