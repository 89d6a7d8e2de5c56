#include "base/xxh3.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

namespace tessera {

struct Xxh3::State {
  State() : xxh(XXH3_createState()) { XXH3_64bits_reset(xxh); }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  XXH3_state_t* xxh;
};

Xxh3::Xxh3() : state_(std::make_unique<State>()) {}
Xxh3::~Xxh3() = default;
Xxh3::Xxh3(Xxh3&&) noexcept = default;
Xxh3& Xxh3::operator=(Xxh3&&) noexcept = default;

void Xxh3::update(const void* data, size_t bytes) {
  if (bytes > 0) XXH3_64bits_update(state_->xxh, data, bytes);
}

uint64_t Xxh3::digest() const {
  return XXH3_64bits_digest(state_->xxh);
}

std::string Xxh3::hex() const {
  return xxh3_text(digest());
}

uint64_t xxh3_64(const void* data, size_t bytes) {
  return XXH3_64bits(bytes > 0 ? data : "", bytes);
}

std::string xxh3_text(uint64_t digest) {
  return fmt::format("{:016x}", digest);
}

std::string xxh3_hex(const void* data, size_t bytes) {
  return xxh3_text(xxh3_64(data, bytes));
}

bool is_xxh3_hex(const std::string& text) {
  return text.size() == 16 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace tessera
