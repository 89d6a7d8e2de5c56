#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "parallel/comm/core/agreement.h"

namespace tessera::doctor {

// Collective: what every rank has, by rank. Texts that are no UTF-8 (paths may be anything) arrive
// with a sign in place of what is not.
template <typename T>
std::vector<T> gather(Communicator& world, const T& own) {
  const nlohmann::json json = own;
  std::vector<T> all;
  for (const std::string& text :
       gather_messages(world, json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)))
    all.push_back(nlohmann::json::parse(text).get<T>());
  return all;
}

}  // namespace tessera::doctor
