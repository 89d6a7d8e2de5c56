#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

// A keyed permutation of [0, n), computed in O(1) per element and stored nowhere: a balanced
// Feistel network with Philox as round function permutes [0, 2^k), k even and 2^k >= n; a result
// that is not below n goes through it again until it is (cycle walking: Black & Rogaway, "Ciphers
// with arbitrary finite domains", 2002).
class KeyedPermutation {
 public:
  KeyedPermutation(uint64_t n, uint64_t key);
  uint64_t operator()(uint64_t i) const;

 private:
  uint64_t n_;
  uint64_t key_;
  int half_bits_;
};

// One row of a micro-batch: which sample, and whether it counts (rows that only fill up weigh 0).
struct SampleSlot {
  int64_t sample;
  bool counts;
};

// The data position is one number: the global sample counter. Together with the seed it decides
// every sample of every step, on any number of ranks. Epoch e of N samples is the permutation keyed
// by (seed, e).
class Sampler {
 public:
  // shuffle false: samples in order, as validation reads them.
  Sampler(int64_t num_samples, uint64_t seed, bool shuffle = true);

  // The id of global sample number `counter` (epochs follow each other without a gap).
  int64_t sample_at(int64_t counter) const;

  // The ids of the global batch that starts at `counter`, in global order.
  std::vector<int64_t> global_batch(int64_t counter, int64_t global_batch_size) const;

 private:
  int64_t num_samples_;
  uint64_t seed_;
  bool shuffle_;
};

// How many micro-batches each data-parallel rank runs for a global batch: ceil(G / (m * dp)).
int64_t num_micro_batches(int64_t global_batch_size, int64_t micro_batch_size, int dp);

// The rows of micro-batch `index` of rank dp_rank: rows ((index*dp + dp_rank)*m ...) of the global
// batch; rows past its end repeat sample 0 of the batch with counts = false.
std::vector<SampleSlot> micro_batch_rows(const std::vector<int64_t>& global_batch,
                                         int64_t micro_batch_size, int dp, int dp_rank,
                                         int64_t index);

}  // namespace tessera
