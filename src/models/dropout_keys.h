#pragma once

#include <string>

namespace tessera {

// Whether a key of a model says how much is dropped, by the endings of Hugging Face's names. What
// the weights mean does not depend on such a key, so it may change from run to run.
inline bool is_dropout_key(const std::string& key) {
  return key.ends_with("dropout") || key.ends_with("_pdrop") || key.ends_with("dropout_prob");
}

}  // namespace tessera
