// Llama as a chain of stages: tied embeddings, selective recompute.
#include "models/llama/llama.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include "stage_chain.h"

namespace tessera {
namespace {

TEST(TiedEmbeddings, HeadBorrowsTheEmbedding) {
  on_tp_ranks(2, [&](Mesh& mesh) {
    LlamaConfig config = chain_config();
    config.tie_word_embeddings = true;
    StageChain chain(config, 12, mesh, {});
    Stage& head = *chain.stages().back();
    ASSERT_EQ(head.borrowed().size(), 1U);
    EXPECT_EQ(head.borrowed()[0], &chain.stages()[0]->table().parameters()[0]);
    EXPECT_EQ(head.borrowed()[0]->spec.name, "model.embed_tokens.weight");
    EXPECT_EQ(head.table().parameters().size(), 1U);  // the norm
    EXPECT_FALSE(chain.gradients().contains("lm_head.weight"));
  });
}

// The same function as a model whose two matrices are equal; the gradient is the sum of theirs.
TEST(TiedEmbeddings, GradientIsTheSumOfBothUses) {
  for (int tp : {1, 2, 4}) {
    on_tp_ranks(tp, [&](Mesh& mesh) {
      LlamaConfig config = chain_config();
      StageChain separate(config, 12, mesh, {});
      config.tie_word_embeddings = true;
      StageChain tied(config, 12, mesh, {});
      const auto& embedding = separate.stages()[0]->table().parameters()[0];
      auto& head = separate.stages().back()->table();
      at::Tensor(head.parameters()[1].value.detach()).copy_(embedding.value.detach());
      const MicroBatch batch = chain_batch(at::kFloat);
      EXPECT_EQ(tied.forward_backward(batch), separate.forward_backward(batch));
      auto expected = separate.gradients();
      expected["model.embed_tokens.weight"] =
          expected.at("model.embed_tokens.weight") + expected.at("lm_head.weight");
      for (const auto& [name, grad] : tied.gradients())
        EXPECT_LE(distance(grad, expected.at(name)), 1e-6) << name;
    });
  }
}

LlamaConfig with_dropout(double p) {
  LlamaConfig config = chain_config();
  config.attention_dropout = config.hidden_dropout = config.embedding_dropout = p;
  return config;
}

TEST(SelectiveRecompute, ChangesNoBit) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const double p : {0.0, 0.2}) {
      for (int tp : {1, 2}) {
        on_tp_ranks(tp, [&](Mesh& mesh) {
          ModelOptions options;
          options.activations = dtype;
          StageChain kept(with_dropout(p), 12, mesh, options);
          options.selective_recompute = true;
          StageChain recomputed(with_dropout(p), 12, mesh, options);
          const auto batch = chain_batch(dtype == at::kDouble ? at::kDouble : at::kFloat);
          EXPECT_EQ(recomputed.forward_backward(batch), kept.forward_backward(batch));
          const auto expected = kept.gradients();
          for (const auto& [name, grad] : recomputed.gradients())
            EXPECT_TRUE(at::equal(grad, expected.at(name))) << name << " in " << dtype;
        });
      }
    }
  }
}

// Bytes of CPU tensors that this thread allocated and has not freed.
class Meter : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override {
    bytes += size;
  }
  bool memoryProfilingEnabled() const override { return true; }

  int64_t bytes = 0;
};

// What one block keeps from its forward to its backward pass, its output included.
int64_t kept_bytes(Mesh& mesh, const LlamaConfig& config, bool selective) {
  ModelOptions options;
  options.selective_recompute = selective;
  StageChain chain(config, 12, mesh, options);
  const MicroBatch batch = chain_batch(at::kFloat);
  const at::Tensor x = at::ones({24, config.hidden_size}).set_requires_grad(true);
  const auto meter = std::make_shared<Meter>();
  c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
  const TensorList output = chain.stages()[1]->forward({x}, batch);
  const int64_t kept = meter->bytes;
  output[0].backward(at::ones_like(output[0]));
  return kept;
}

TEST(SelectiveRecompute, KeepsNeitherNormsNorTheProduct) {
  on_tp_ranks(1, [&](Mesh& mesh) {
    for (const double p : {0.0, 0.2}) {
      const LlamaConfig config = with_dropout(p);
      const int64_t all = kept_bytes(mesh, config, false), some = kept_bytes(mesh, config, true);
      const int64_t n = 24;
      EXPECT_EQ(all - some, n * (2 * config.hidden_size + config.intermediate_size) * 4);
      // Left: qkv, the attention's output, the sum after it, gate and up, the block's output, and a
      // few numbers a row.
      const int64_t columns =
          config.hidden_size * 3 + 2 * config.intermediate_size +
          (config.num_attention_heads + 2 * config.num_key_value_heads) * config.head_dim();
      EXPECT_GE(some, n * columns * 4);
      EXPECT_LE(some, n * (columns + config.num_attention_heads + 8) * 4 + 1024);
    }
  });
}

}  // namespace
}  // namespace tessera
