#pragma once

#include <map>
#include <memory>

#include "parallel/comm/core/communicator.h"
#include "parallel/device/device.h"
#include "parallel/mesh_shape.h"

namespace tessera {

// This rank's place in the mesh and one communicator per axis and use. Gathers and reduces over
// dp_shard have communicators of their own so that they can overlap. Models meet communication only
// through a Mesh.
class Mesh {
 public:
  // Collective over `world`; Error unless its size is shape.world(). A tp group that straddles
  // nodes would send every layer's activations over the network: a UserError, unless the caller
  // allows it.
  Mesh(MeshShape shape, std::unique_ptr<Communicator> world, bool allow_tp_across_nodes = false);

  const MeshShape& shape() const { return shape_; }
  // Where this rank computes: the device whose tensors the world takes.
  const Device& device() const { return device_; }
  int tp() const { return shape_.tp; }
  int dp_shard() const { return shape_.dp_shard; }
  int dp_replicate() const { return shape_.dp_replicate; }
  int dp() const { return shape_.dp(); }
  int tp_rank() const { return tp_rank_; }
  int dp_shard_rank() const { return dp_shard_rank_; }
  int dp_replicate_rank() const { return dp_replicate_rank_; }
  // Among all ranks that run different data.
  int dp_rank() const { return dp_replicate_rank_ * shape_.dp_shard + dp_shard_rank_; }

  Communicator& world() { return *world_; }
  Communicator& tp_group() { return *tp_group_; }
  Communicator& gather_group() { return *gather_group_; }
  Communicator& reduce_group() { return *reduce_group_; }
  // The `copies` consecutive ranks of tp that hold the same part of a parameter with so many copies
  // (Placement): tp_group() where they are all of it. The first call for a number is collective
  // over tp.
  Communicator& tp_copies_group(int copies);
  // Ranks that hold copies of the same shard.
  Communicator& replicate_group() { return *replicate_group_; }

 private:
  MeshShape shape_;
  int tp_rank_;
  int dp_shard_rank_;
  int dp_replicate_rank_;
  std::unique_ptr<Communicator> world_;
  Device device_;
  std::unique_ptr<Communicator> tp_group_;
  std::map<int, std::unique_ptr<Communicator>> tp_copies_groups_;
  std::unique_ptr<Communicator> gather_group_;
  std::unique_ptr<Communicator> reduce_group_;
  std::unique_ptr<Communicator> replicate_group_;
};

}  // namespace tessera
