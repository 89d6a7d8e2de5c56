#pragma once

#include <cstdint>

#include "parallel/fsdp/flat_bucket.h"

namespace tessera {

// Draws this rank's part of the bucket's master weights. Each element is a function of the seed,
// the parameter's name and its index in the whole tensor (Philox), so every mesh starts from the
// same bits and no rank ever holds more than its shard.
void initialize_weights(FlatBucket& bucket, uint64_t seed);

}  // namespace tessera
