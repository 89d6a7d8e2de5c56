#pragma once

#include "parallel/fsdp/flat_bucket.h"

namespace tessera {

// All of a table's parameters in one bucket.
inline FlatBucket one_bucket(ParameterTable& table, Mesh& mesh, const BucketOptions& options = {}) {
  std::vector<ParameterPack*> packs;
  for (ParameterPack& pack : table.packs()) packs.push_back(&pack);
  return FlatBucket("bucket", packs, mesh, options);
}

}  // namespace tessera
