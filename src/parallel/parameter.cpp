#include "parallel/parameter.h"

#include "base/error.h"

namespace tessera {

ParameterPack& ParameterTable::add_pack(std::vector<ParameterSpec> specs) {
  ParameterPack pack;
  for (auto& spec : specs) {
    Box box = whole_box(spec.shape);
    if (spec.tp.is_sharded()) {
      const int dim = spec.tp.dim;
      if (spec.shape[dim] % tp_ != 0)
        fail("parameter", "{}: dim {} of size {} does not divide by tp {}", spec.name, dim,
             spec.shape[dim], tp_);
      box.shape[dim] /= tp_;
      box.offset[dim] = tp_rank_ * box.shape[dim];
    }
    parameters_.push_back({std::move(spec), std::move(box), {}, {}, {}});
    pack.parts.push_back(&parameters_.back());
  }
  packs_.push_back(std::move(pack));
  return packs_.back();
}

}  // namespace tessera
