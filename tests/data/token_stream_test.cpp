#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "data/data_files.h"
#include "data/indexed_dataset.h"
#include "data/token_stream.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::user_error;
using testing::write_pair;

std::vector<uint16_t> counting(int n, int from = 0) {
  std::vector<uint16_t> tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), static_cast<uint16_t>(from));
  return tokens;
}

class TokenStreamTest : public ::testing::Test {
 protected:
  std::string pair(const std::string& name, const std::vector<uint16_t>& tokens) {
    write_pair(folder_ / name, 8, tokens);
    return folder_ / name;
  }
  TemporaryFolder folder_;
};

// D03.
TEST_F(TokenStreamTest, NeedsOneSampleAndOneToken) {
  const std::string eight = pair("eight", counting(8));
  EXPECT_THAT(user_error([&] { TokenStream stream({eight}, 8); }),
              AllOf(HasSubstr("8 tokens in " + eight), HasSubstr("seq_len 8 takes 9")));
  const TokenStream nine({pair("nine", counting(9))}, 8);
  EXPECT_EQ(nine.num_samples(), 1);
  EXPECT_EQ(TokenStream({pair("p", counting(16))}, 8).num_samples(), 1);
  EXPECT_EQ(TokenStream({pair("q", counting(17))}, 8).num_samples(), 2);
  EXPECT_THAT(user_error([] { TokenStream stream({}, 8); }), HasSubstr("no data"));
  EXPECT_THAT(user_error([&] { TokenStream stream({eight}, 0); }), HasSubstr("seq_len 0"));
}

TEST_F(TokenStreamTest, SamplesShareOneToken) {
  const TokenStream stream({pair("a", counting(10))}, 4);
  std::vector<int64_t> sample(5);
  stream.read_sample(0, 16, sample);
  EXPECT_THAT(sample, ElementsAre(0, 1, 2, 3, 4));
  stream.read_sample(1, 16, sample);
  EXPECT_THAT(sample, ElementsAre(4, 5, 6, 7, 8));
  EXPECT_THROW(stream.read_sample(2, 16, sample), Error);  // token 9 is the tail
  EXPECT_THROW(stream.read_sample(-1, 16, sample), Error);
  std::vector<int64_t> four(4);
  EXPECT_THROW(stream.read_sample(0, 16, four), Error);
}

// D08: the position is one number, so whatever file it falls into follows from it. Three files of
// 41 tokens, numbered through: sample k is tokens [8k, 8k + 8], over the borders of files as well.
TEST_F(TokenStreamTest, PrefixesFollowEachOther) {
  const std::vector<std::string> prefixes = {pair("a", counting(41)), pair("b", counting(41, 41)),
                                             pair("c", counting(41, 82))};
  const TokenStream stream(prefixes, 8);
  EXPECT_EQ(stream.num_tokens(), 123);
  EXPECT_EQ(stream.num_samples(), 15);
  std::vector<int64_t> sample(9);
  for (int64_t k = 0; k < stream.num_samples(); ++k) {
    stream.read_sample(k, 200, sample);
    for (int64_t i = 0; i < 9; ++i) EXPECT_EQ(sample[i], 8 * k + i) << "sample " << k;
  }
}

TEST_F(TokenStreamTest, ASampleMaySpanManyShortFiles) {
  const TokenStream stream({pair("a", {1}), pair("b", {2, 3}), pair("c", {4}), pair("d", {5})}, 4);
  std::vector<int64_t> sample(5);
  stream.read_sample(0, 16, sample);
  EXPECT_THAT(sample, ElementsAre(1, 2, 3, 4, 5));
}

TEST_F(TokenStreamTest, FingerprintsFollowThePrefixes) {
  const std::string a = pair("a", counting(41)), b = pair("b", counting(41, 41));
  const auto of = [](const std::vector<std::string>& prefixes) {
    return TokenStream(prefixes, 8).fingerprints();
  };
  const std::string of_a = IndexedDataset(a).fingerprint(), of_b = IndexedDataset(b).fingerprint();
  EXPECT_NE(of_a, of_b);
  EXPECT_THAT(of({a, b}), ElementsAre(of_a, of_b));
  EXPECT_THAT(of({b, a, b}), ElementsAre(of_b, of_a, of_b));
}

// D06.
TEST_F(TokenStreamTest, RefusesIdsOutsideTheVocabulary) {
  std::vector<uint16_t> tokens(200, 3);
  tokens[100] = 16;
  const std::string prefix = pair("ids", tokens);
  const TokenStream stream({prefix}, 8);
  std::vector<int64_t> sample(9);
  stream.read_sample(0, 16, sample);
  for (int64_t k : {12, 12}) {
    EXPECT_THAT(
        user_error([&] { stream.read_sample(k, 16, sample); }),
        AllOf(HasSubstr("token 16 at offset 100 of " + prefix), HasSubstr("vocab_size 16")));
  }
  stream.read_sample(12, 17, sample);

  tokens[100] = 65535;
  const TokenStream second({pair("first", counting(8)), pair("ids", tokens)}, 8);
  EXPECT_THAT(
      user_error([&] { second.read_sample(13, 16, sample); }),
      HasSubstr("token 65535 at offset 100 of " + prefix));  // the offset counts in its file
}

TEST_F(TokenStreamTest, RefusesNegativeIds) {
  write_pair<int32_t>(folder_ / "negative", 4, {1, 2, -5, 3, 4, 5, 6, 7, 8});
  const TokenStream stream({folder_ / "negative"}, 8);
  std::vector<int64_t> sample(9);
  EXPECT_THAT(user_error([&] { stream.read_sample(0, 16, sample); }),
              AllOf(HasSubstr("token -5 at offset 2"), HasSubstr("ids must be 0 to 15")));
}

}  // namespace
}  // namespace tessera
