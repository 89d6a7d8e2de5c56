#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/model_options.h"
#include "models/pre_norm_block.h"
#include "parallel/executor/stage.h"
#include "parallel/mesh.h"

namespace tessera {

// What a language model around its blocks is made of. Names are those of Hugging Face's files,
// without ".weight" and ".bias".
struct DecoderParts {
  std::string embedding;  // names its dropout, too
  // Learned positions, added to the embedding; 0: positions come from elsewhere.
  std::string positions = {};
  int64_t position_count = 0;
  double embedding_dropout;
  std::string blocks;  // block i has the prefix "BLOCKS.i."
  int64_t block_count;
  BlockParts block;
  std::string norm;  // of what the head reads; like the block's
  int64_t vocab_size;
  bool tied;  // the head borrows the embedding's parameter, else it has its own, lm_head
};

// A decoder of tokens as a chain of stages: embedding, blocks, head with loss. `mesh` outlives
// them.
//
// clang-format off
//   tokens [B, S] -> x [B*S, H] = embedding(tokens), + positions
//   blocks           x -> x (pre_norm_block.h)
//   head             x -> sum over tokens of weight * cross_entropy(lm_head(norm(x)), target)
// clang-format on
//
// Embedding and head are split by vocabulary over tp; norm and positions are whole on every rank.
// Under sequence parallelism x has this rank's B*S / T rows.
std::vector<std::unique_ptr<Stage>> make_decoder(const DecoderParts& parts, Mesh& mesh,
                                                 const ModelOptions& options);

}  // namespace tessera
