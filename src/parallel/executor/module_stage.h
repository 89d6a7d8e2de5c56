#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "parallel/executor/stage.h"
#include "parallel/mesh.h"

namespace torch::nn {
class Module;
}

namespace tessera {

struct ModuleStageOptions {
  std::string prefix;                     // of the parameters' names
  std::optional<at::ScalarType> buffers;  // floating-point buffers are converted to it; none: kept
  // The stages before this one: a parameter that one of their modules has too is tied to it.
  std::vector<Stage*> earlier;
};

// Any torch::nn::Module as a stage, unchanged: its parameters become views of the buckets, their
// gradients are autograd's, and they start from the values that the module was made with. Those
// must be the same on every rank: seed LibTorch's generator alike before. Tensor parallelism splits
// nothing of it: every rank of a tp group computes the same. A parameter that requires no gradient
// is frozen. Weight decay applies to what has two dims or more.
class ModuleStage : public Stage {
 public:
  using Forward = std::function<TensorList(const TensorList& inputs, const MicroBatch& batch)>;

  // `forward` calls the module.
  ModuleStage(std::string name, std::shared_ptr<torch::nn::Module> module, Forward forward,
              const Mesh& mesh, const ModuleStageOptions& options = {});

  TensorList forward(const TensorList& inputs, const MicroBatch& batch) override {
    return forward_(inputs, batch);
  }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  Forward forward_;
};

}  // namespace tessera
