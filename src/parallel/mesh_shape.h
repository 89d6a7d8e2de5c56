#pragma once

namespace tessera {

// The mesh's axes: world = dp_replicate x dp_shard x tp, tp fastest, then dp_shard, then
// dp_replicate.
struct MeshShape {
  int dp_replicate = 1;
  int dp_shard = 1;
  int tp = 1;

  int world() const { return dp_replicate * dp_shard * tp; }
  int dp() const { return dp_replicate * dp_shard; }
  bool operator==(const MeshShape&) const = default;
};

}  // namespace tessera
