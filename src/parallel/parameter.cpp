#include "parallel/parameter.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace tessera {
namespace {

// The part of [0, size) that number `index` of `parts` holds: sizes differ by at most one, the
// larger come first.
void take_part(Box& box, int dim, int64_t parts, int64_t index) {
  const int64_t each = box.shape[dim] / parts, rest = box.shape[dim] % parts;
  box.shape[dim] = each + (index < rest ? 1 : 0);
  box.offset[dim] = index * each + std::min(index, rest);
}

void check_placement(const ParameterSpec& spec, int tp) {
  const auto [dim, copies, uneven] = spec.tp;
  if (copies < 1 || tp % copies != 0)
    fail("parameter", "{}: {} copies of each part; they must divide tp {}", spec.name, copies, tp);
  const int64_t size = spec.shape[dim], parts = tp / copies;
  if (uneven ? size < parts : size % parts != 0)
    fail("parameter", "{}: dim {} of size {} {} tp {}", spec.name, dim, size,
         uneven ? "has no row for every rank of" : "does not divide by",
         copies == 1 ? std::to_string(tp)
                     : std::to_string(tp) + " / " + std::to_string(copies) + " copies");
}

}  // namespace

ParameterPack& ParameterTable::add_pack(std::vector<ParameterSpec> specs) {
  ParameterPack pack;
  for (auto& spec : specs) {
    Box box = whole_box(spec.shape), largest = box;
    if (spec.tp.is_sharded()) {
      check_placement(spec, tp_);
      const int parts = tp_ / spec.tp.shard_copies;
      take_part(box, spec.tp.dim, parts, tp_rank_ / spec.tp.shard_copies);
      take_part(largest, spec.tp.dim, parts, 0);
    }
    parameters_.push_back({std::move(spec), std::move(box), {}, {}, {}, largest.numel()});
    pack.parts.push_back(&parameters_.back());
  }
  packs_.push_back(std::move(pack));
  return packs_.back();
}

}  // namespace tessera
