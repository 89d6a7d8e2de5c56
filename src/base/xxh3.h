#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tessera {

// XXH3-64 of bytes that come in parts. Not cryptographic: it finds damage, not malice.
class Xxh3 {
 public:
  Xxh3();
  ~Xxh3();
  Xxh3(Xxh3&&) noexcept;
  Xxh3& operator=(Xxh3&&) noexcept;

  void update(const void* data, size_t bytes);
  // Of what came so far; hex() as 16 lower-case hex digits.
  uint64_t digest() const;
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

uint64_t xxh3_64(const void* data, size_t bytes);
// A digest as 16 lower-case hex digits.
std::string xxh3_text(uint64_t digest);
std::string xxh3_hex(const void* data, size_t bytes);

// True for exactly 16 lower-case hex digits.
bool is_xxh3_hex(const std::string& text);

}  // namespace tessera
