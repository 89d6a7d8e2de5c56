#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/data_files.h"
#include "data/pair_source.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::user_error;

constexpr int64_t kPad = 0, kBos = 1, kEos = 2;
const PairOptions kOptions{5, 4, kPad, kBos, kEos, 16};

// A data set of these sequences, back to back, a document each.
std::string write_sequences(const std::string& prefix,
                            const std::vector<std::vector<uint16_t>>& sequences) {
  testing::Index index;
  index.dtype = 8;
  index.documents = {0};
  std::vector<uint16_t> tokens;
  for (const auto& sequence : sequences) {
    index.lengths.push_back(static_cast<int32_t>(sequence.size()));
    index.offsets.push_back(static_cast<int64_t>(2 * tokens.size()));
    index.documents.push_back(static_cast<int64_t>(index.lengths.size()));
    tokens.insert(tokens.end(), sequence.begin(), sequence.end());
  }
  testing::write_file(prefix + ".idx", index.bytes());
  testing::write_file(prefix + ".bin", testing::bytes_of(tokens));
  return prefix;
}

at::Tensor ids(std::initializer_list<int64_t> values) {
  return at::tensor(std::vector<int64_t>(values), at::kLong);
}

class PairSourceTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string a_ = write_sequences(folder_ / "a", {{3, 4, 5, 6}, {7}});
  std::string b_ = write_sequences(folder_ / "b", {{8, 9}, {10, 11, 12}});
  std::string c_ = write_sequences(folder_ / "c", {{13, 14}});
  std::string d_ = write_sequences(folder_ / "d", {{15}});
};

TEST_F(PairSourceTest, AddsBeginEndAndPadding) {
  const PairSource source({a_, c_}, {b_, d_}, kOptions);
  EXPECT_EQ(source.num_samples(), 3);
  EXPECT_EQ(source.positions_per_sample(), 9);
  EXPECT_EQ(source.counted_targets(0), 3);
  EXPECT_EQ(source.counted_targets(1), 4);
  EXPECT_EQ(counted_targets(source, {0, 1, 2}), 9);
  const std::vector<SampleSlot> rows = {{0, true}, {1, true}, {2, false}};
  const MicroBatch batch = source.load(rows, {.target_weight = 0.5});
  EXPECT_TRUE(at::equal(batch.source[0], ids({3, 4, 5, 6, kEos})));
  EXPECT_TRUE(at::equal(batch.source[1], ids({7, kEos, kPad, kPad, kPad})));
  EXPECT_TRUE(at::equal(batch.source[2], ids({13, 14, kEos, kPad, kPad})));
  EXPECT_TRUE(at::equal(batch.source_lengths, ids({5, 2, 3})));
  EXPECT_TRUE(at::equal(batch.tokens[0], ids({kBos, 8, 9, kPad})));
  EXPECT_TRUE(at::equal(batch.targets[0], ids({8, 9, kEos, kPad})));
  EXPECT_TRUE(at::equal(batch.tokens[1], ids({kBos, 10, 11, 12})));
  EXPECT_TRUE(at::equal(batch.targets[1], ids({10, 11, 12, kEos})));
  EXPECT_TRUE(at::equal(batch.weights, at::tensor({0.5F, 0.5F, 0.5F, 0.0F,  //
                                                   0.5F, 0.5F, 0.5F, 0.5F,  //
                                                   0.0F, 0.0F, 0.0F, 0.0F})
                                           .view({3, 4})));
  EXPECT_EQ(source.fingerprints().size(), 4U);
}

TEST_F(PairSourceTest, RefusesPairsThatDoNotFit) {
  PairOptions options = kOptions;
  options.source_len = 4;
  EXPECT_THAT(user_error([&] { PairSource source({a_}, {b_}, options); }),
              AllOf(HasSubstr("sequence 0 of " + a_ + " has 4 tokens, 5 with its end"),
                    HasSubstr("data.source_len is 4 and nothing is cut")));
  options = kOptions;
  options.target_len = 3;
  EXPECT_THAT(user_error([&] { PairSource source({a_}, {b_}, options); }),
              AllOf(HasSubstr("sequence 1 of " + b_), HasSubstr("data.target_len is 3")));
  EXPECT_THAT(user_error([&] { PairSource source({a_}, {c_}, kOptions); }),
              HasSubstr("has 2 sequences and " + c_ + " has 1"));
  EXPECT_THAT(user_error([&] {
                PairSource source({a_, c_}, {b_}, kOptions);
              }),
              HasSubstr("2 source data sets and 1 target data sets"));
}

TEST_F(PairSourceTest, RefusesTokensThatAreNoPlainOnes) {
  const std::string eos = write_sequences(folder_ / "eos", {{3, kEos}, {3}});
  const PairSource ended({eos}, {b_}, kOptions);
  EXPECT_THAT(user_error([&] { ended.check_samples(2); }),
              AllOf(HasSubstr("token 2 at place 1 of sequence 0 of " + eos), HasSubstr("eos_id")));
  EXPECT_THAT(user_error([&] {
                ended.load(std::vector<SampleSlot>{{0, true}}, {});
              }),
              HasSubstr("token 2 at place 1"));
  const std::string wide = write_sequences(folder_ / "wide", {{3}, {4, 16}});
  EXPECT_THAT(user_error([&] { PairSource({wide}, {b_}, kOptions).check_samples(9); }),
              AllOf(HasSubstr("token 16 at place 1 of sequence 1"), HasSubstr("0 to 15")));
}

}  // namespace
}  // namespace tessera
