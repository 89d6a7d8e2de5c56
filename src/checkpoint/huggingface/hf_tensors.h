#pragma once

#include <optional>
#include <string>
#include <vector>

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
  // With tied embeddings: `head` has no tensor of its own, and one in a file must be `embedding`.
  struct Tied {
    std::string head;
    std::string embedding;
  };
  std::optional<Tied> tied;
  // What a model saved without its head has under names without this prefix, and the parameter that
  // such files lack; empty: neither.
  std::string base_prefix;
  std::string head;
  // Ends of names of tensors in old files that follow from the configuration: rotary frequencies,
  // causal masks.
  std::vector<std::string> ignored;
};

}  // namespace tessera
