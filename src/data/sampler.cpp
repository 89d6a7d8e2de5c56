#include "data/sampler.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/philox.h"

namespace tessera {
namespace {

// Four rounds make a pseudo-random permutation of a large domain; small ones need more.
constexpr int kRounds = 8;

}  // namespace

KeyedPermutation::KeyedPermutation(uint64_t n, uint64_t key) : n_(n), key_(key) {
  if (n == 0 || n > uint64_t{1} << 62) fail("data", "a permutation of {} elements; 1 to 2^62", n);
  half_bits_ = std::max(1, (static_cast<int>(std::bit_width(n - 1)) + 1) / 2);
}

uint64_t KeyedPermutation::operator()(uint64_t i) const {
  if (i >= n_) fail("data", "element {} of a permutation of {}", i, n_);
  const Philox random(key_);
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  // A step of the walk stays on i's cycle, which comes back to i < n, so it ends; the domain is
  // less than four times n, so it takes fewer than four steps on average.
  do {
    uint64_t left = i >> half_bits_, right = i & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t mixed = left ^ (random.block(right, round)[0] & mask);
      left = right;
      right = mixed;
    }
    i = left << half_bits_ | right;
  } while (i >= n_);
  return i;
}

Sampler::Sampler(int64_t num_samples, uint64_t seed, bool shuffle)
    : num_samples_(num_samples), seed_(seed), shuffle_(shuffle) {
  if (num_samples < 1) fail_user("data", "{} samples; at least one is needed", num_samples);
}

int64_t Sampler::sample_at(int64_t counter) const {
  if (counter < 0) fail("data", "global sample counter {} is negative", counter);
  const auto in_epoch = static_cast<uint64_t>(counter % num_samples_);
  if (!shuffle_) return static_cast<int64_t>(in_epoch);
  const auto epoch = static_cast<uint64_t>(counter / num_samples_);
  const auto words = Philox(seed_).block(epoch, stream_of("data.epoch"));
  const uint64_t key = uint64_t{words[0]} << 32 | words[1];
  const KeyedPermutation order(static_cast<uint64_t>(num_samples_), key);
  return static_cast<int64_t>(order(in_epoch));
}

std::vector<int64_t> Sampler::global_batch(int64_t counter, int64_t global_batch_size) const {
  if (global_batch_size < 1 || global_batch_size > num_samples_) {
    fail_user("data", "a global batch of {} from {} samples; it must be 1 to the number of samples",
              global_batch_size, num_samples_);
  }
  std::vector<int64_t> ids(static_cast<size_t>(global_batch_size));
  for (int64_t i = 0; i < global_batch_size; ++i) ids[i] = sample_at(counter + i);
  return ids;
}

int64_t num_micro_batches(int64_t global_batch_size, int64_t micro_batch_size, int dp) {
  if (global_batch_size < 1 || micro_batch_size < 1 || dp < 1) {
    fail("data", "global batch {}, micro-batch {}, {} ranks: all must be at least 1",
         global_batch_size, micro_batch_size, dp);
  }
  const int64_t rows = micro_batch_size * dp;
  return global_batch_size / rows + (global_batch_size % rows != 0);
}

std::vector<SampleSlot> micro_batch_rows(const std::vector<int64_t>& global_batch,
                                         int64_t micro_batch_size, int dp, int dp_rank,
                                         int64_t index) {
  const auto size = static_cast<int64_t>(global_batch.size());
  if (index < 0 || index >= num_micro_batches(size, micro_batch_size, dp) || dp_rank < 0 ||
      dp_rank >= dp) {
    fail("data",
         "micro-batch {} of rank {} of {}, global batch {}, micro-batch size {}: no such rows",
         index, dp_rank, dp, size, micro_batch_size);
  }
  const int64_t first = (index * dp + dp_rank) * micro_batch_size;
  std::vector<SampleSlot> rows(static_cast<size_t>(micro_batch_size));
  for (int64_t i = 0; i < micro_batch_size; ++i) {
    const bool counts = first + i < size;
    rows[i] = {global_batch[counts ? first + i : 0], counts};
  }
  return rows;
}

}  // namespace tessera
