// The loss's memory as the system counts it: the peak of this process's memory over a loss of
// 128256 words, beside what loss_buffer_bytes() says. The bound is not asked of what it bounds.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>

#include <fstream>

#include "base/process/process_memory.h"
#include "parallel/tensor_parallel/vocab_cross_entropy.h"
#include "support/mpi_test.h"

namespace tessera {
namespace {

constexpr int64_t kVocab = 128256, kHidden = 64;

// From here on the kernel's mark of the highest resident memory counts again.
void reset_peak() {
  std::ofstream("/proc/self/clear_refs") << 5;
}

int64_t peak_growth(const TensorParallel& tp, at::ScalarType dtype, int64_t tokens) {
  const int64_t rows = kVocab / tp.size();
  const at::Tensor value = at::full({rows, kHidden}, 0.01, dtype);
  const at::Tensor grad = at::zeros_like(value);
  const at::Tensor h = at::full({tokens / tp.token_parts(), kHidden}, 0.5, dtype);
  const at::Tensor x = h.set_requires_grad(true);
  const at::Tensor targets = at::arange(tokens, at::kLong), weights = at::ones({tokens});
  malloc_trim(0);
  tp.group().barrier().wait();
  reset_peak();
  const int64_t before = peak_resident_bytes();
  const at::Tensor loss =
      vocab_parallel_loss(x, {value, grad}, tp.rank() * rows, kVocab, targets, weights, tp);
  loss.backward();
  return peak_resident_bytes() - before;
}

// What the matrix library takes for itself in the three products of a loss, into memory that is
// there: on a processor without instructions for halves, the weights' gradient in fp32.
int64_t library_growth(const TensorParallel& tp, at::ScalarType dtype, int64_t tokens) {
  const int64_t rows = kVocab / tp.size();
  const at::Tensor value = at::full({rows, kHidden}, 0.01, dtype);
  const at::Tensor h = at::full({tokens, kHidden}, 0.5, dtype);
  at::Tensor logits = at::full({tokens, rows}, 0.0, dtype), dh = at::zeros_like(h);
  at::Tensor grad = at::full({rows, kHidden}, 0.0, dtype);
  malloc_trim(0);
  reset_peak();
  const int64_t before = peak_resident_bytes();
  at::mm_out(logits, h, value.t());
  at::mm_out(dh, logits, value);
  grad.addmm_(logits.t(), h);
  return peak_resident_bytes() - before;
}

TEST(LossMemory, StaysWithinTheBound) {
  mallopt(M_MMAP_THRESHOLD, 64 * 1024);
  at::set_num_threads(1);
  const auto world = make_mpi_world(testing::mpi_runtime());
  const struct {
    at::ScalarType dtype;
    int64_t tokens, chunk;
    bool sequence_parallel;
  } cases[] = {{at::kFloat, 512, 64, false},
               {at::kFloat, 512, 0, true},
               {at::kFloat, 512, 256, true},
               {at::kBFloat16, 64, 16, false},
               {at::kBFloat16, 64, 0, true}};
  for (const auto& c : cases) {
    const TensorParallel tp(*world,
                            {.sequence_parallel = c.sequence_parallel, .loss_chunk = c.chunk});
    peak_growth(tp, c.dtype, 16);  // what threads and communicators allocate once
    const int64_t library =
        library_growth(tp, c.dtype, c.chunk > 0 ? std::min(c.chunk, c.tokens) : c.tokens);
    const int64_t grown = peak_growth(tp, c.dtype, c.tokens);
    const int64_t bound = loss_buffer_bytes({kVocab, kHidden, c.dtype, c.tokens}, tp);
    if (tp.rank() == 0)
      std::printf("%d ranks, %s, chunk %ld: %.1f MB grown, %.1f MB bound, %.1f MB the library's\n",
                  tp.size(), c10::toString(c.dtype), static_cast<long>(c.chunk),
                  static_cast<double>(grown) / 1e6, static_cast<double>(bound) / 1e6,
                  static_cast<double>(library) / 1e6);
    // h's gradient, a few numbers a token, and the matrix library's own buffers: those of a
    // product, and about 2.5 MB for halves, however many the words.
    const int64_t slack = library + c.tokens * (kHidden * 4 + 256) + (int64_t{4} << 20);
    EXPECT_LE(grown, bound + slack);
    EXPECT_GE(grown, bound / 2);
  }
}

}  // namespace
}  // namespace tessera
