#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "parallel/parameter.h"
#include "parallel/tensor_parallel/linear.h"

namespace tessera {

// A matrix and its bias as the linear layers take them.
struct Biased {
  Weight weight;
  Weight bias;
};

// The parameters of layers with biases, in the table of one stage under one prefix of names.
// Matrices start normal, biases at 0, norms at weight 1 and bias 0.
class BiasedTable {
 public:
  struct Linear {
    ParameterPack* weight;
    ParameterPack* bias;  // null: none

    Biased values() const { return {weight_of(*weight), bias ? weight_of(*bias) : Weight()}; }
  };
  struct Norm {
    Parameter* weight;
    Parameter* bias;

    Biased values() const { return {weight_of(*weight), weight_of(*bias)}; }
  };

  // `sequence_parallel`: what is whole on every rank sees only this rank's tokens.
  BiasedTable(ParameterTable& table, std::string prefix, double std, bool sequence_parallel = false)
      : table_(table),
        prefix_(std::move(prefix)),
        normal_(Initializer::normal(std)),
        sequence_parallel_(sequence_parallel) {}

  // Layers of `out` rows each that read the same input, in one matrix product; split by rows.
  Linear columns(std::initializer_list<const char*> names, int64_t out, int64_t in,
                 bool bias = true) const {
    return linear(names, out, in, Placement::shard(0), Placement::shard(0), bias);
  }
  // Split by columns; the bias is whole.
  Linear rows(const char* name, int64_t out, int64_t in) const {
    return linear({name}, out, in, Placement::shard(1), Placement::replicate(), true);
  }
  Norm norm(const std::string& name, int64_t size) const {
    return {&vector(name + ".weight", size, Placement::replicate(), 1.0),
            &vector(name + ".bias", size, Placement::replicate(), 0.0)};
  }
  Parameter& matrix(const std::string& name, std::vector<int64_t> shape,
                    Placement placement) const {
    return table_.add({.name = prefix_ + name,
                       .shape = std::move(shape),
                       .tp = placement,
                       .init = normal_,
                       .partial_gradient = sequence_parallel_});
  }
  Parameter& vector(const std::string& name, int64_t size, Placement placement,
                    double value) const {
    return table_.add(vector_spec(name, size, placement, value));
  }

 private:
  ParameterSpec vector_spec(const std::string& name, int64_t size, Placement placement,
                            double value) const {
    return {.name = prefix_ + name,
            .shape = {size},
            .tp = placement,
            .init = Initializer::constant(value),
            .decay = false,
            .partial_gradient = sequence_parallel_};
  }
  Linear linear(std::initializer_list<const char*> names, int64_t out, int64_t in,
                Placement placement, Placement bias_placement, bool bias) const {
    std::vector<ParameterSpec> weights, biases;
    for (const std::string name : names) {
      weights.push_back({.name = prefix_ + name + ".weight",
                         .shape = {out, in},
                         .tp = placement,
                         .init = normal_});
      biases.push_back(vector_spec(name + ".bias", out, bias_placement, 0.0));
    }
    ParameterPack& pack = table_.add_pack(std::move(weights));
    return {&pack, bias ? &table_.add_pack(std::move(biases)) : nullptr};
  }

  ParameterTable& table_;
  std::string prefix_;
  Initializer normal_;
  bool sequence_parallel_;
};

}  // namespace tessera
