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
  if (!options.buffers) return;
  for (auto& entry : module_->named_buffers())
    if (entry.value().is_floating_point())
      entry.value().set_data(entry.value().to(*options.buffers));
}

}  // namespace tessera
