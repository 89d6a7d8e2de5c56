#include "training/start/data_warnings.h"

#include <fmt/format.h>

#include "checkpoint/huggingface/hf_files.h"
#include "data/indexed_dataset.h"

namespace tessera {
namespace {

// Above this many ids a vocabulary is no alphabet of bytes with some ids added.
constexpr int64_t kLargestByteVocabulary = 1024;

// The first of the files whose tokens are single bytes; null if there is none. The element type
// tells: tokenizers have more ids than an u8 holds, and `data pack` writes nothing else.
const IndexedDataset* find_bytes(const SampleSource& source) {
  for (const IndexedDataset* file : source.token_files())
    if (file->token_type() == TokenType::kU8) return file;
  return nullptr;
}

void warn_of_bytes(const Config& config, const Data& data, const RunStart& start,
                   std::vector<std::string>& warnings) {
  const IndexedDataset* bytes = find_bytes(*data.train);
  if (!bytes && data.valid) bytes = find_bytes(*data.valid);
  if (!bytes) return;
  const auto& files = start.hf_files;
  const int64_t vocab_size = config.model->input().vocab_size;
  if (files && has_tokenizer(*files)) {
    warnings.push_back(
        fmt::format("{} holds bytes (u8 tokens, as `tessera data pack` writes them), but the model "
                    "comes with the tokenizer in {}, whose ids mean other text; pack the text with "
                    "that tokenizer in Megatron's layout",
                    bytes->prefix(), files->string()));
  } else if (vocab_size > kLargestByteVocabulary) {
    warnings.push_back(
        fmt::format("{} holds bytes (u8 tokens, as `tessera data pack` writes them), but the model "
                    "has a vocabulary of {}: no id above 255 will be trained; if that is not "
                    "meant, pack the text with the model's tokenizer, or set model.vocab_size: 256",
                    bytes->prefix(), vocab_size));
  }
}

void warn_of_modes(const SampleSource& source, std::vector<std::string>& warnings) {
  for (const IndexedDataset* file : source.token_files()) {
    if (file->num_other_modes() > 0)
      warnings.push_back(
          fmt::format("{}: {} of {} sequences are no text (a mode other than 0 in the multimodal "
                      "index); they are trained on as tokens like the rest",
                      file->prefix(), file->num_other_modes(), file->num_sequences()));
  }
}

}  // namespace

std::vector<std::string> data_warnings(const Config& config, const Data& data,
                                       const RunStart& start) {
  std::vector<std::string> warnings;
  warn_of_bytes(config, data, start, warnings);
  warn_of_modes(*data.train, warnings);
  if (data.valid) warn_of_modes(*data.valid, warnings);
  return warnings;
}

}  // namespace tessera
