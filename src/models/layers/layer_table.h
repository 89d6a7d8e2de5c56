#pragma once

#include <string>
#include <vector>

#include "models/layers/layer_norm.h"
#include "models/layers/rms_norm.h"
#include "parallel/parameter.h"
#include "parallel/tensor_parallel/linear.h"

namespace tessera {

// A matrix and its bias as the linear layers take them.
struct Biased {
  Weight weight;
  Weight bias;  // its value undefined: none
};

// The parameters of a linear layer, or of several that read the same input in one product.
struct Linear {
  ParameterPack* weight;
  ParameterPack* bias;  // null: none

  Biased values() const { return {weight_of(*weight), bias ? weight_of(*bias) : Weight()}; }
};

// A norm at a branch of the residual stream: LayerNorm, or RMSNorm where it has no bias.
struct Norm {
  Parameter* weight;
  Parameter* bias;  // null: none
  double eps;

  // x [N, H]; of x + delta.
  NormResult operator()(const at::Tensor& x) const;
  NormResult of_sum(const at::Tensor& x, const at::Tensor& delta) const;
};

// Declares the parameters of layers in the table of one stage, under one prefix of names. Matrices
// start normal with standard deviation `std`, biases at 0, norms at weight 1 and bias 0; vectors
// have no weight decay.
class LayerTable {
 public:
  // `sequence_parallel`: what is whole on every rank sees only this rank's tokens.
  LayerTable(ParameterTable& table, std::string prefix, double std, bool sequence_parallel = false);

  // One of the layers of columns(): `name` with `rows` rows, each held by `copies` ranks of tp.
  struct Columns {
    std::string name;
    int64_t rows;
    int copies = 1;
  };
  // Split by rows, for column_parallel_linear(): matrices [rows, in], biases [rows].
  Linear columns(const std::vector<Columns>& layers, int64_t in, bool bias) const;
  // Split by columns, for row_parallel_linear(): matrix [out, in]; the bias [out] is whole.
  Linear rows(const std::string& name, int64_t out, int64_t in, bool bias) const;
  // [size], whole. bias: LayerNorm, else RMSNorm.
  Norm norm(const std::string& name, int64_t size, double eps, bool bias) const;
  // A norm of each head, [head_dim] (head_norm.h): every rank has heads of its own.
  Parameter& head_norm(const std::string& name, int64_t head_dim) const;

  Parameter& matrix(const std::string& name, std::vector<int64_t> shape, Placement placement) const;
  // Its elements start at `value`.
  Parameter& vector(const std::string& name, int64_t size, Placement placement, double value) const;

 private:
  ParameterSpec vector_spec(const std::string& name, int64_t size, Placement placement,
                            double value) const;

  ParameterTable& table_;
  std::string prefix_;
  Initializer normal_;
  bool sequence_parallel_;
};

}  // namespace tessera
