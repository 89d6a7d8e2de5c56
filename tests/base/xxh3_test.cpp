#include "base/xxh3.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

// The digest of nothing, from the xxHash specification: the format depends on it.
TEST(Xxh3, DigestOfNothing) {
  EXPECT_EQ(xxh3_hex(nullptr, 0), "2d06800538d394c2");
  EXPECT_EQ(Xxh3().hex(), "2d06800538d394c2");
}

TEST(Xxh3, PartsGiveTheDigestOfTheWhole) {
  std::string text(100000, 'x');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i % 251);
  Xxh3 hash;
  for (size_t done = 0, part = 1; done < text.size(); done += part, part = part * 2 + 1) {
    part = std::min(part, text.size() - done);
    hash.update(text.data() + done, part);
  }
  EXPECT_EQ(hash.hex(), xxh3_hex(text.data(), text.size()));
  text[77777] ^= 1;
  EXPECT_NE(hash.hex(), xxh3_hex(text.data(), text.size()));
}

TEST(Xxh3, HexForm) {
  EXPECT_TRUE(is_xxh3_hex("0123456789abcdef"));
  EXPECT_FALSE(is_xxh3_hex("0123456789abcde"));
  EXPECT_FALSE(is_xxh3_hex("0123456789ABCDEF"));
  EXPECT_FALSE(is_xxh3_hex("0123456789abcdeg"));
}

}  // namespace
}  // namespace tessera
