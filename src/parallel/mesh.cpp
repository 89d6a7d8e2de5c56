#include "parallel/mesh.h"

#include "base/error.h"

namespace tessera {

Mesh::Mesh(MeshShape shape, std::unique_ptr<Communicator> world, bool allow_tp_across_nodes)
    : shape_(shape), world_(std::move(world)), device_(Device::of(world_->device())) {
  if (world_->size() != shape.world())
    fail("mesh", "{} ranks cannot form a mesh of dp_replicate {} x dp_shard {} x tp {} = {} ranks",
         world_->size(), shape.dp_replicate, shape.dp_shard, shape.tp, shape.world());
  const int rank = world_->rank();
  tp_rank_ = rank % shape.tp;
  dp_shard_rank_ = rank / shape.tp % shape.dp_shard;
  dp_replicate_rank_ = rank / (shape.tp * shape.dp_shard);
  // Ranks of one tp group differ in tp_rank alone; ranks of one dp_shard group in dp_shard_rank
  // alone.
  tp_group_ = world_->split(rank / shape.tp, tp_rank_, "tp");
  if (!allow_tp_across_nodes && !tp_group_->on_one_node())
    fail_user(
        "mesh",
        "the tp group of ranks {} to {} straddles nodes (tp {}); let tp divide the ranks of a "
        "node and number ranks node by node (mpirun --map-by slot, srun --distribution=block), "
        "or allow tp groups across nodes",
        rank - tp_rank_, rank - tp_rank_ + shape.tp - 1, shape.tp);
  const int shard_color = dp_replicate_rank_ * shape.tp + tp_rank_;
  gather_group_ = world_->split(shard_color, dp_shard_rank_, "gather");
  reduce_group_ = world_->split(shard_color, dp_shard_rank_, "reduce");
  replicate_group_ =
      world_->split(rank % (shape.tp * shape.dp_shard), dp_replicate_rank_, "replicate");
}

Communicator& Mesh::tp_copies_group(int copies) {
  if (copies == tp()) return *tp_group_;
  if (copies < 1 || tp() % copies != 0)
    fail("mesh", "groups of {} ranks of tp {}; they must divide it", copies, tp());
  auto& group = tp_copies_groups_[copies];
  if (!group) group = tp_group_->split(tp_rank_ / copies, tp_rank_ % copies, "tp copies");
  return *group;
}

}  // namespace tessera
