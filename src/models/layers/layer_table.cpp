#include "models/layers/layer_table.h"

#include <utility>

namespace tessera {

NormResult Norm::operator()(const at::Tensor& x) const {
  return bias ? layer_norm(x, weight_of(*weight), weight_of(*bias), eps)
              : rms_norm(x, weight_of(*weight), eps);
}

NormResult Norm::of_sum(const at::Tensor& x, const at::Tensor& delta) const {
  return bias ? add_layer_norm(x, delta, weight_of(*weight), weight_of(*bias), eps)
              : add_rms_norm(x, delta, weight_of(*weight), eps);
}

LayerTable::LayerTable(ParameterTable& table, std::string prefix, double std,
                       bool sequence_parallel)
    : table_(table),
      prefix_(std::move(prefix)),
      normal_(Initializer::normal(std)),
      sequence_parallel_(sequence_parallel) {}

Linear LayerTable::columns(const std::vector<Columns>& layers, int64_t in, bool bias) const {
  std::vector<ParameterSpec> weights, biases;
  for (const Columns& layer : layers) {
    const Placement placement = Placement::shard(0, layer.copies);
    weights.push_back({.name = prefix_ + layer.name + ".weight",
                       .shape = {layer.rows, in},
                       .tp = placement,
                       .init = normal_});
    biases.push_back(vector_spec(layer.name + ".bias", layer.rows, placement, 0.0));
  }
  ParameterPack& pack = table_.add_pack(std::move(weights));
  return {&pack, bias ? &table_.add_pack(std::move(biases)) : nullptr};
}

Linear LayerTable::rows(const std::string& name, int64_t out, int64_t in, bool bias) const {
  ParameterPack& pack = table_.add_pack({{.name = prefix_ + name + ".weight",
                                          .shape = {out, in},
                                          .tp = Placement::shard(1),
                                          .init = normal_}});
  if (!bias) return {&pack, nullptr};
  return {&pack, &table_.add_pack({vector_spec(name + ".bias", out, Placement::replicate(), 0.0)})};
}

Norm LayerTable::norm(const std::string& name, int64_t size, double eps, bool bias) const {
  Parameter& weight = vector(name + ".weight", size, Placement::replicate(), 1.0);
  return {&weight, bias ? &vector(name + ".bias", size, Placement::replicate(), 0.0) : nullptr,
          eps};
}

Parameter& LayerTable::head_norm(const std::string& name, int64_t head_dim) const {
  ParameterSpec spec = vector_spec(name + ".weight", head_dim, Placement::replicate(), 1.0);
  spec.partial_gradient = true;
  return table_.add(std::move(spec));
}

Parameter& LayerTable::matrix(const std::string& name, std::vector<int64_t> shape,
                              Placement placement) const {
  return table_.add({.name = prefix_ + name,
                     .shape = std::move(shape),
                     .tp = placement,
                     .init = normal_,
                     .partial_gradient = sequence_parallel_});
}

Parameter& LayerTable::vector(const std::string& name, int64_t size, Placement placement,
                              double value) const {
  return table_.add(vector_spec(name, size, placement, value));
}

ParameterSpec LayerTable::vector_spec(const std::string& name, int64_t size, Placement placement,
                                      double value) const {
  return {.name = prefix_ + name,
          .shape = {size},
          .tp = placement,
          .init = Initializer::constant(value),
          .decay = false,
          .partial_gradient = sequence_parallel_};
}

}  // namespace tessera
