#include "parallel/fsdp/tp_gradient_sum.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "parallel/comm/shm/thread_communicator.h"
#include "parallel/one_bucket.h"

namespace tessera {
namespace {

// What rank `rank` of tp has of a gradient: every element its own, all distinct.
double element(int rank, const std::string& name, int64_t index) {
  return (rank + 1) * 1000 + static_cast<double>(name[0]) + static_cast<double>(index % 50) / 64;
}

TEST(TpGradientSum, SumsWhatIsPartialAndNothingElse) {
  for (const MeshShape shape : {MeshShape{1, 1, 4}, MeshShape{1, 3, 4}, MeshShape{2, 2, 2}}) {
    for (int zero = 0; zero <= 3; ++zero) {
      run_thread_ranks(shape.world(), [&](Communicator& world) {
        Mesh mesh(shape, world.split(0, world.rank(), "world"));
        ParameterTable table(mesh.tp(), mesh.tp_rank());
        const Initializer init;
        table.add({"split", {8, 20}, Placement::shard(0), init});
        table.add({"copies", {4, 40}, Placement::shard(0, 2), init});
        table.add({"whole", {7}, Placement::replicate(), init});
        table.add({.name = "norm",
                   .shape = {300},
                   .tp = Placement::replicate(),
                   .init = init,
                   .partial_gradient = true});
        // Above the size that is packed.
        table.add({.name = "large",
                   .shape = {200000},
                   .tp = Placement::replicate(),
                   .init = init,
                   .partial_gradient = true});
        FlatBucket bucket = one_bucket(table, mesh, {.policy = {.zero = zero}});
        auto* grad = bucket.grad().mutable_data_ptr<float>();
        for (const Segment& segment : bucket.update_segments())
          for (int64_t i = 0; i < segment.slice.numel(); ++i)
            grad[segment.shard_offset + i] = static_cast<float>(
                element(mesh.tp_rank(), segment.parameter->spec.name, segment.slice.begin + i));
        TpGradientSum({&bucket}, mesh).run();
        for (const Segment& segment : bucket.update_segments()) {
          const ParameterSpec& spec = segment.parameter->spec;
          const int group = spec.partial_gradient  ? mesh.tp()
                            : spec.tp.is_sharded() ? spec.tp.shard_copies
                                                   : 1;
          const int first = mesh.tp_rank() / group * group;
          for (int64_t i = 0; i < segment.slice.numel(); i += 37) {
            double wanted = 0;
            for (int rank = first; rank < first + group; ++rank)
              wanted += element(rank, spec.name, segment.slice.begin + i);
            ASSERT_EQ(grad[segment.shard_offset + i], wanted) << spec.name;
          }
        }
      });
    }
  }
}

}  // namespace
}  // namespace tessera
