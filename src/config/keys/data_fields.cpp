#include "config/keys/sections.h"

#include "base/fields/field_kinds.h"

namespace tessera {
namespace {

// Keys of images.
std::vector<Field> image_fields(DataSection& d) {
  return {
      {"mean",
       RealListValue{&d.mean, {}},
       false,
       kMathematics,
       "Images: by channel, taken from values in [0, 1]. []: 0.",
       {"image_mean"}},
      {"std",
       RealListValue{&d.std, above(0)},
       false,
       kMathematics,
       "Images: by channel, what values less their mean are divided by. []: 1.",
       {"image_std"}},
      {"flip",
       FlagValue{&d.flip},
       false,
       kMathematics,
       "Images: mirror half of them left to right in training, which ones by seed and step.",
       {"horizontal_flip", "hflip"}},
  };
}

// Keys of pairs.
std::vector<Field> pair_fields(DataSection& d) {
  const bool pairs = d.kind == DataKind::kPairs;
  return {
      {"train_target",
       paths(d.train_target),
       pairs,
       kFree,
       "Pairs: the targets of `train`, a prefix for each of its prefixes.",
       {}},
      {"valid_target", paths(d.valid_target), false, kFree, "Pairs: the targets of `valid`.", {}},
      {"source_len",
       integer_or("none", d.source_len, 1, kMaxSize),
       pairs,
       kMathematics,
       "Pairs: tokens of a source with its end, padding included.",
       {"max_source_length"}},
      {"target_len",
       integer_or("none", d.target_len, 1, kMaxSize),
       pairs,
       kMathematics,
       "Pairs: tokens of a target with its end, padding included.",
       {"max_target_length"}},
      {"pad_id",
       integer_or("none", d.pad_id, 0, kMaxSize),
       pairs,
       kMathematics,
       "Pairs: the token that fills rows up; it is masked and weighs 0.",
       {"pad_token_id"}},
      {"bos_id",
       integer_or("none", d.bos_id, 0, kMaxSize),
       pairs,
       kMathematics,
       "Pairs: the token that begins the decoder's input.",
       {"bos_token_id", "decoder_start_token_id"}},
      {"eos_id",
       integer_or("none", d.eos_id, 0, kMaxSize),
       pairs,
       kMathematics,
       "Pairs: the token that ends sources and targets.",
       {"eos_token_id"}},
  };
}

}  // namespace

Section data_section(DataSection& d) {
  std::vector<Field> fields = {
      {"kind",
       choice(d.kind, {"tokens", "images", "pairs"},
              {{"text", "tokens"},
               {"token", "tokens"},
               {"lm", "tokens"},
               {"image", "images"},
               {"vision", "images"},
               {"pair", "pairs"},
               {"seq2seq", "pairs"},
               {"translation", "pairs"}}),
       false,
       kMathematics,
       "What a sample is. tokens: a piece of text; images: an image and its class; pairs: a source "
       "and a target sequence.",
       {"type"}},
      {"train",
       paths(d.train),
       true,
       kFree,
       "Training data, in this order: prefixes of .bin/.idx pairs (of pairs the sources), or "
       "safetensors files of images.",
       {"train_data", "path", "data_path", "train_files", "train_file", "train_path", "dataset",
        "data_prefix"}},
      {"valid",
       paths(d.valid),
       false,
       kFree,
       "Held-out data, named as `train`.",
       {"validation", "val", "valid_data", "eval_data", "validation_file", "valid_data_path"}},
      {"seq_len",
       integer_or("none", d.seq_len, 1, kMaxSize),
       d.kind == DataKind::kTokens,
       kMathematics,
       "Tokens: of one sample.",
       {"seq_length", "sequence_length", "block_size", "max_seq_len", "max_seq_length",
        "context_length", "ctx_len", "sequence_len"}},
  };
  for (auto& more : {image_fields(d), pair_fields(d)})
    fields.insert(fields.end(), more.begin(), more.end());
  return {"data",
          "Token files in Megatron's layout (`tessera data pack` writes them), images "
          "(tools/pack_images.py), or pairs of token files (tools/make_pairs.py).",
          std::move(fields)};
}

}  // namespace tessera
