#include "data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "data/data_files.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::user_error;

std::vector<int64_t> ids(const Sampler& sampler, int64_t from, int64_t count) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(sampler.sample_at(from + i));
  return out;
}

std::vector<int64_t> sorted(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  return values;
}

std::vector<int64_t> range(int64_t n) {
  std::vector<int64_t> values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

TEST(KeyedPermutationTest, IsABijection) {
  for (uint64_t n : {1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 255, 1000, 1025, 10007}) {
    for (uint64_t key : {0, 1, 12345}) {
      const KeyedPermutation permutation(n, key);
      std::vector<bool> seen(n, false);
      for (uint64_t i = 0; i < n; ++i) {
        const uint64_t image = permutation(i);
        ASSERT_LT(image, n);
        ASSERT_FALSE(seen[image]) << "n " << n << " key " << key;
        seen[image] = true;
      }
    }
  }
}

TEST(KeyedPermutationTest, WorksOnHugeDomains) {
  const uint64_t n = (uint64_t{1} << 61) + 12345;
  const KeyedPermutation permutation(n, 7);
  std::set<uint64_t> images;
  for (uint64_t i = 0; i < 1000; ++i) images.insert(permutation(n - 1 - i));
  EXPECT_EQ(images.size(), 1000U);
  EXPECT_LT(*images.rbegin(), n);
  EXPECT_GT(*images.rbegin(), n / 2);
  EXPECT_THROW(permutation(n), Error);
  EXPECT_THROW(KeyedPermutation(0, 7), Error);
}

// Over many keys each element goes to each place about equally often. Expected count 4000 / 5 = 800
// with a standard deviation of 25; 6 of them are allowed, so a fair permutation does not fail.
TEST(KeyedPermutationTest, HasNoFavouritePlaces) {
  for (uint64_t n : {3, 5}) {
    const int keys = 800 * static_cast<int>(n);
    std::map<std::pair<uint64_t, uint64_t>, int> count;
    for (int key = 0; key < keys; ++key) {
      const KeyedPermutation permutation(n, static_cast<uint64_t>(key));
      for (uint64_t i = 0; i < n; ++i) ++count[{i, permutation(i)}];
    }
    EXPECT_EQ(count.size(), n * n);
    for (const auto& [place, times] : count) {
      EXPECT_NEAR(times, 800, 150) << "n " << n << ": " << place.first << " -> " << place.second;
    }
  }
}

// Neighbours must not stay neighbours: about 2 of n - 1 steps are +1 or -1 in a random order.
TEST(KeyedPermutationTest, BreaksUpNeighbours) {
  const KeyedPermutation permutation(1000, 99);
  int close = 0;
  for (uint64_t i = 0; i + 1 < 1000; ++i) {
    const auto step =
        static_cast<int64_t>(permutation(i + 1)) - static_cast<int64_t>(permutation(i));
    close += std::abs(step) == 1;
  }
  EXPECT_LE(close, 12);
}

// R06: each epoch has its own order, and the seed alone decides it.
TEST(SamplerTest, EpochsDifferAndRepeatWithTheSeed) {
  const Sampler sampler(64, 42);
  const auto first = ids(sampler, 0, 64);
  const auto second = ids(sampler, 64, 64);
  EXPECT_EQ(sorted(first), range(64));
  EXPECT_EQ(sorted(second), range(64));
  EXPECT_NE(first, second);
  EXPECT_NE(first, range(64));
  EXPECT_EQ(ids(Sampler(64, 42), 0, 128), ids(sampler, 0, 128));
  EXPECT_NE(ids(Sampler(64, 43), 0, 64), first);
  std::set<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 50; ++epoch) orders.insert(ids(sampler, 64 * epoch, 64));
  EXPECT_EQ(orders.size(), 50U);
}

// The order is part of every checkpoint's meaning: a resumed run must see the same samples after an
// upgrade. If this fails, the sampler changed and old runs no longer resume exactly.
TEST(SamplerTest, OrderIsFixedForEver) {
  EXPECT_EQ(ids(Sampler(1000, 42), 0, 6), (std::vector<int64_t>{907, 398, 124, 411, 901, 65}));
  EXPECT_EQ(ids(Sampler(1000, 42), 1000, 6), (std::vector<int64_t>{788, 966, 262, 257, 776, 894}));
}

TEST(SamplerTest, InOrderWithoutShuffle) {
  EXPECT_THAT(ids(Sampler(3, 42, false), 0, 7), ElementsAre(0, 1, 2, 0, 1, 2, 0));
}

// R03: a counter that stands exactly at an epoch's end goes on with the next epoch.
TEST(SamplerTest, GoesOnAtAnEpochEnd) {
  const Sampler sampler(64, 7);
  std::vector<int64_t> later;
  for (int64_t counter = 64; counter < 128; counter += 4) {
    const auto batch = sampler.global_batch(counter, 4);
    later.insert(later.end(), batch.begin(), batch.end());
  }
  EXPECT_EQ(sorted(later), range(64));
  // A batch over the border takes the end of one epoch and the start of the next (D11: nothing is
  // dropped and no rank is left without rows).
  const Sampler five(5, 7);
  EXPECT_EQ(five.global_batch(4, 4), (std::vector<int64_t>{five.sample_at(4), five.sample_at(5),
                                                           five.sample_at(6), five.sample_at(7)}));
}

// D09 and A09: 64 samples are one epoch of 16 batches of 4, on any number of ranks and with any
// accumulation, and every rank layout sees each sample once.
TEST(SamplerTest, RanksShareAnEpochWithoutOverlap) {
  const Sampler sampler(64, 3);
  for (int dp : {1, 2, 3, 4}) {
    for (int64_t micro : {1, 2, 4}) {
      std::vector<int64_t> seen;
      for (int64_t step = 0; step < 16; ++step) {
        const auto batch = sampler.global_batch(4 * step, 4);
        for (int64_t index = 0; index < num_micro_batches(4, micro, dp); ++index) {
          for (int rank = 0; rank < dp; ++rank) {
            for (const SampleSlot& slot : micro_batch_rows(batch, micro, dp, rank, index)) {
              if (slot.counts) seen.push_back(slot.sample);
            }
          }
        }
      }
      EXPECT_EQ(sorted(seen), range(64)) << "dp " << dp << " micro " << micro;
    }
  }
  EXPECT_EQ(num_micro_batches(4, 2, 1), 2);  // A09: two micro-batches make one update
}

// D14: the data is sorted (sample k is k); each of 4 ranks must see all of it in its first epoch.
TEST(SamplerTest, EveryRankSeesAllKindsOfData) {
  for (uint64_t seed : {1, 2, 3, 42, 1234}) {
    const Sampler sampler(64, seed);
    for (int rank = 0; rank < 4; ++rank) {
      double sum = 0, quarter = 0;
      for (int64_t step = 0; step < 16; ++step) {
        const auto rows = micro_batch_rows(sampler.global_batch(4 * step, 4), 1, 4, rank, 0);
        sum += static_cast<double>(rows[0].sample);
        quarter += static_cast<double>(sampler.sample_at(16 * rank + step));
      }
      EXPECT_NEAR(sum / 16, 31.5, 12) << "seed " << seed << " rank " << rank;
      EXPECT_NEAR(quarter / 16, 31.5, 12) << "seed " << seed << " quarter " << rank;
    }
  }
}

// Three ranks train what four did: 8 rows in micro-batches of 2 on 3 ranks leave weightless rows.
TEST(SamplerTest, RowsPastTheBatchDoNotCount) {
  const std::vector<int64_t> batch = {10, 11, 12, 13, 14, 15, 16};
  EXPECT_EQ(num_micro_batches(7, 2, 3), 2);
  const auto rows = [&](int rank, int64_t index) {
    std::vector<std::pair<int64_t, bool>> out;
    for (const SampleSlot& slot : micro_batch_rows(batch, 2, 3, rank, index)) {
      out.emplace_back(slot.sample, slot.counts);
    }
    return out;
  };
  using Rows = std::vector<std::pair<int64_t, bool>>;
  EXPECT_EQ(rows(0, 0), (Rows{{10, true}, {11, true}}));
  EXPECT_EQ(rows(2, 0), (Rows{{14, true}, {15, true}}));
  EXPECT_EQ(rows(0, 1), (Rows{{16, true}, {10, false}}));
  EXPECT_EQ(rows(1, 1), (Rows{{10, false}, {10, false}}));
  EXPECT_EQ(rows(2, 1), (Rows{{10, false}, {10, false}}));
  EXPECT_THROW(rows(0, 2), Error);
  EXPECT_THROW(rows(3, 0), Error);
}

// D03: fewer samples than a batch.
TEST(SamplerTest, RefusesABatchLargerThanTheData) {
  EXPECT_THAT(user_error([] { Sampler(1, 42).global_batch(0, 4); }),
              HasSubstr("a global batch of 4 from 1 samples"));
  EXPECT_THAT(user_error([] { Sampler sampler(0, 42); }), HasSubstr("0 samples"));
  EXPECT_THROW(Sampler(5, 42).sample_at(-1), Error);
  EXPECT_THROW(num_micro_batches(8, 0, 2), Error);
}

}  // namespace
}  // namespace tessera
