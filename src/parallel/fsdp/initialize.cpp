#include "parallel/fsdp/initialize.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/philox.h"

namespace tessera {

void initialize_weights(FlatBucket& bucket, uint64_t seed) {
  const Philox philox(seed);
  auto* master = bucket.master().mutable_data_ptr<float>();
  for (const auto& segment : bucket.segments()) {
    const auto& spec = segment.parameter->spec;
    float* out = master + segment.shard_offset;
    if (spec.init.std == 0.0) {
      std::fill(out, out + segment.slice.numel(), static_cast<float>(spec.init.value));
      continue;
    }
    const uint64_t stream = stream_of(spec.name);
    const Box box = whole_box(spec.shape);
    const BoxSlice whole{box, 0, box.numel()};
    for_each_shared_run(whole, segment.slice, [&](const SharedRun& run) {
      philox.normals(stream, static_cast<uint64_t>(run.a_pos), spec.init.std, out + run.b_pos,
                     run.numel);
    });
  }
}

}  // namespace tessera
