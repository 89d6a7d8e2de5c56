#include "config/keys/meant.h"

#include <algorithm>
#include <cctype>

#include "base/text/nearest.h"
#include "base/text/odd_characters.h"

namespace tessera {
namespace {

struct Instead {
  const char* key;
  const char* what;
};

constexpr Instead kInstead[] = {
    {"gradient_accumulation_steps",
     "it follows from training.global_batch_size, training.micro_batch_size and the number of "
     "data-parallel ranks"},
    {"accumulate_grad_batches",
     "it follows from training.global_batch_size, training.micro_batch_size and the number of "
     "data-parallel ranks"},
    {"num_train_epochs", "a run is as long as training.steps says"},
    {"max_epochs", "a run is as long as training.steps says"},
    {"epochs", "a run is as long as training.steps says"},
    {"num_epochs", "a run is as long as training.steps says"},
    {"world_size", "the launcher says how many ranks there are"},
    {"nnodes", "the launcher says how many nodes there are"},
    {"num_nodes", "the launcher says how many nodes there are"},
    {"num_gpus", "the launcher says how many ranks there are, one on each GPU"},
    {"nproc_per_node", "the launcher says how many ranks a node has"},
    {"pipeline_model_parallel_size", "there is no pipeline parallelism; see section parallel"},
    {"pipeline_parallel_size", "there is no pipeline parallelism; see section parallel"},
    {"pipeline_parallel_degree", "there is no pipeline parallelism; see section parallel"},
    {"context_parallel_size", "there is no context parallelism; see section parallel"},
    {"context_parallel_degree", "there is no context parallelism; see section parallel"},
    {"bf16", "set precision.params: bf16"},
    {"fp16", "set precision.params: fp16"},
    {"warmup_ratio", "set schedule.warmup_steps"},
    {"adam_beta1", "set optimizer.betas: [BETA1, BETA2]"},
    {"adam_beta2", "set optimizer.betas: [BETA1, BETA2]"},
    {"beta1", "set optimizer.betas: [BETA1, BETA2]"},
    {"beta2", "set optimizer.betas: [BETA1, BETA2]"},
    {"lr_decay_iters", "the schedule ends with the run"},
    {"split", "give held-out data as data.valid (`tessera data pack --valid-fraction`)"},
    {"tokenizer", "data is packed as tokens already (`tessera data pack`, tools/)"},
    {"tokenizer_path", "data is packed as tokens already (`tessera data pack`, tools/)"},
    {"compile", "there is nothing to compile"},
    {"local_rank", "the launcher says it"},
};

// Small letters, ASCII, with _ for the signs that names are joined by.
std::string plain(std::string_view text) {
  std::string result = in_ascii(text);
  for (char& c : result)
    c = c == '-' || c == ' ' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

}  // namespace

std::string meant_word(std::string_view text, const std::vector<std::string>& words,
                       const Synonyms& synonyms) {
  const std::string name = plain(text);
  for (const std::string& word : words)
    if (plain(word) == name) return word;
  for (const auto& [other, word] : synonyms)
    if (other == name) return word;
  const int near = nearest(name, words);
  return near < 0 ? "" : words[static_cast<size_t>(near)];
}

std::string_view instead_of(std::string_view key) {
  const std::string name = plain(key);
  const auto* found = std::find_if(std::begin(kInstead), std::end(kInstead),
                                   [&](const Instead& entry) { return name == entry.key; });
  return found == std::end(kInstead) ? "" : found->what;
}

}  // namespace tessera
