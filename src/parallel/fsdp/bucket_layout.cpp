#include "parallel/fsdp/bucket_layout.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr int64_t kAlignment = 64;  // elements

int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace

BucketLayout::BucketLayout(std::vector<ParameterPack*> bucket_packs, int shards)
    : packs(std::move(bucket_packs)) {
  for (const ParameterPack* pack : packs) {
    numel = round_up(numel, kAlignment);
    offsets.push_back(numel);
    for (const Parameter* part : pack->parts) numel += part->reserved;
  }
  numel = round_up(numel, kAlignment * shards);
}

std::vector<Segment> BucketLayout::segments(int64_t begin, int64_t end, int64_t origin) const {
  std::vector<Segment> found;
  for (size_t i = 0; i < packs.size(); ++i) {
    int64_t offset = offsets[i];
    for (Parameter* part : packs[i]->parts) {
      const int64_t numel_of_part = part->box.numel();
      const int64_t from = std::max(offset, begin), to = std::min(offset + numel_of_part, end);
      if (from < to)
        found.push_back({part, {part->box, from - offset, to - offset}, from - origin});
      offset += numel_of_part;
    }
  }
  return found;
}

}  // namespace tessera
