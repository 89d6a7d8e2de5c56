#pragma once

#include <cstdint>
#include <string>

#include "base/divisors.h"
#include "models/model.h"

namespace tessera {

// The numbers of tp, up to `limit`, that this model can be split over, for a message: "1, 2, 4".
inline std::string good_tps(const Model& model, int64_t limit) {
  return list_of(limit, [&](int64_t tp) { return model.why_not_tp(tp).empty(); });
}

}  // namespace tessera
