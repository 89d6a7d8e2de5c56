#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/format/pieces.h"
#include "parallel/fsdp/flat_bucket.h"

namespace tessera {

// The first parameter in the order of `table` whose gradient holds an infinity or a NaN on any
// rank; nullopt if all are finite. One pass over the gradients, for a step that has failed already.
// Collective: all ranks get the same answer.
std::optional<std::string> first_nonfinite_gradient(const std::vector<FlatBucket*>& buckets,
                                                    const std::vector<TensorInfo>& table,
                                                    Mesh& mesh);

}  // namespace tessera
