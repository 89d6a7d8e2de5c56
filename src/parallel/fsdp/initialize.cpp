#include "parallel/fsdp/initialize.h"

#include <ATen/ATen.h>

#include "base/philox.h"

namespace tessera {

void initialize_weights(FlatBucket& bucket, uint64_t seed) {
  const Philox philox(seed);
  for (const auto& segment : bucket.update_segments()) {
    if (segment.parameter->module_tensor.defined()) continue;  // starts from its own values
    const auto& spec = segment.parameter->spec;
    const at::Tensor out = bucket.master().narrow(0, segment.shard_offset, segment.slice.numel());
    if (spec.init.std == 0.0) {
      out.fill_(spec.init.value);
      continue;
    }
    const uint64_t stream = stream_of(spec.name);
    const Box box = whole_box(spec.shape);
    const BoxSlice whole{box, 0, box.numel()};
    // Draws are in fp32 and on the host: a run in fp64 and one on a GPU start from the same
    // weights.
    const at::Tensor drawn =
        out.scalar_type() == at::kFloat && out.is_cpu() ? out : at::empty(out.sizes(), at::kFloat);
    auto* values = drawn.mutable_data_ptr<float>();
    for_each_shared_run(whole, segment.slice, [&](const SharedRun& run) {
      philox.normals(stream, static_cast<uint64_t>(run.a_pos), spec.init.std, values + run.b_pos,
                     run.numel);
    });
    if (!drawn.is_same(out)) out.copy_(drawn);
  }
  bucket.mark_changed();
}

}  // namespace tessera
