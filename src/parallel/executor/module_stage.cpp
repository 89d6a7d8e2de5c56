#include "parallel/executor/module_stage.h"

#include <torch/nn/module.h>

#include "base/error.h"

namespace tessera {
namespace {

// The parameter of an earlier stage that is this very tensor.
Parameter* find_tied(const at::Tensor& tensor, const std::vector<Stage*>& stages) {
  for (Stage* stage : stages)
    for (Parameter& parameter : stage->table().parameters())
      if (parameter.module_tensor.is_same(tensor)) return &parameter;
  return nullptr;
}

}  // namespace

ModuleStage::ModuleStage(std::string name, std::shared_ptr<torch::nn::Module> module,
                         Forward forward, const Mesh& mesh, const ModuleStageOptions& options)
    : Stage(std::move(name), mesh.tp(), mesh.tp_rank()),
      module_(std::move(module)),
      forward_(std::move(forward)) {
  std::vector<at::Tensor> seen;  // a module may list one parameter under two names
  for (const auto& entry : module_->named_parameters()) {
    const at::Tensor& tensor = entry.value();
    if (std::any_of(seen.begin(), seen.end(),
                    [&](const at::Tensor& t) { return t.is_same(tensor); }))
      continue;
    seen.push_back(tensor);
    if (Parameter* tied = find_tied(tensor, options.earlier)) {
      borrow(*tied);
      continue;
    }
    Parameter& parameter = table_.add({.name = options.prefix + entry.key(),
                                       .shape = tensor.sizes().vec(),
                                       .tp = Placement::replicate(),
                                       .init = {},
                                       .decay = tensor.dim() > 1,
                                       .trainable = tensor.requires_grad()});
    parameter.module_tensor = tensor;
  }
  for (auto& entry : module_->named_buffers()) {
    at::Tensor& buffer = entry.value();
    const bool converts = options.buffers && buffer.is_floating_point();
    const at::Tensor placed =
        buffer.to(mesh.device().torch_device(), converts ? *options.buffers : buffer.scalar_type());
    if (!placed.is_same(buffer)) buffer.set_data(placed);
  }
}

}  // namespace tessera
