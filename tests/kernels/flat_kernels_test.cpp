#include <cstring>
#include <limits>

#include "kernel_test.h"
#include "kernels/kernels.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kSizes[] = {1, 3, 17, 64, 1000003};
constexpr at::ScalarType kAllTypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};

class FlatKernels : public KernelTest {
 protected:
  // Floats of every kind: all bf16 bit patterns with lower halves around the rounding cases.
  at::Tensor hard_floats() {
    const uint32_t lows[] = {0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x1000, 0x3000};
    const auto values = at::empty({65536 * 8}, at::kFloat);
    auto* p = values.data_ptr<float>();
    for (uint32_t high = 0; high < 65536; ++high) {
      for (const uint32_t low : lows) {
        const uint32_t bits = high << 16 | low;
        std::memcpy(p++, &bits, sizeof(bits));
      }
    }
    return guarded_copy(values);
  }
};

void run_sum_ranks(const at::Tensor& out, const std::vector<at::Tensor>& sources) {
  std::vector<const void*> pointers;
  for (const auto& source : sources) pointers.push_back(source.const_data_ptr());
  sum_ranks(out.data_ptr(), out.scalar_type(), pointers.data(), sources[0].scalar_type(),
            static_cast<int>(sources.size()), out.numel());
}

// The documented order, in ATen: exact.
at::Tensor sum_in_order(const std::vector<at::Tensor>& sources, at::ScalarType out) {
  const auto wide = sources[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  auto sum = sources[0].to(wide);
  for (size_t k = 1; k < sources.size(); ++k) sum = sum + sources[k].to(wide);
  return sum.to(out);
}

TEST_P(FlatKernels, SumRanksAddsInOrder) {
  const std::pair<at::ScalarType, at::ScalarType> types[] = {
      {at::kFloat, at::kFloat}, {at::kDouble, at::kDouble},  {at::kBFloat16, at::kBFloat16},
      {at::kHalf, at::kHalf},   {at::kBFloat16, at::kFloat}, {at::kHalf, at::kFloat}};
  for (const auto& [src, out] : types) {
    for (const int64_t numel : {1, 3, 17, 64, 1003}) {
      for (const int count : {1, 2, 5}) {
        std::vector<at::Tensor> sources;
        for (int k = 0; k < count; ++k) sources.push_back(randn({numel}, src, k + 1));
        const auto expected = sum_in_order(sources, out);
        const auto result = guarded({numel}, out);
        run_sum_ranks(result, sources);
        EXPECT_TRUE(at::equal(result, expected)) << src << " " << numel << " x " << count;
        if (src != out) continue;
        for (int k = 0; k < count; ++k) {  // in place on any one source
          std::vector<at::Tensor> copies;
          for (const auto& source : sources) copies.push_back(guarded_copy(source));
          run_sum_ranks(copies[static_cast<size_t>(k)], copies);
          EXPECT_TRUE(at::equal(copies[static_cast<size_t>(k)], expected)) << src << " into " << k;
        }
      }
    }
  }
}

TEST_P(FlatKernels, SumRanksRefusesBadArguments) {
  const auto x = randn({4}, at::kFloat);
  const void* sources[] = {x.const_data_ptr()};
  EXPECT_MESSAGE(sum_ranks(x.data_ptr(), at::kFloat, sources, at::kFloat, 0, 4), "count is 0");
  EXPECT_MESSAGE(sum_ranks(x.data_ptr(), at::kBFloat16, sources, at::kFloat, 1, 4),
                 "Float into BFloat16");
  EXPECT_MESSAGE(sum_ranks(x.data_ptr(), at::kInt, sources, at::kInt, 1, 4), "Int");
}

TEST_P(FlatKernels, SumSlicesIsSumRanksOfTheSlices) {
  for (const auto& [src, out] : {std::pair{at::kBFloat16, at::kFloat},
                                 {at::kHalf, at::kFloat},
                                 {at::kFloat, at::kFloat},
                                 {at::kBFloat16, at::kBFloat16}}) {
    for (const int64_t numel : {1, 17, 1003}) {
      const auto in = randn({3, numel}, src);
      const auto result = guarded({numel}, out);
      sum_slices(result, in);
      EXPECT_TRUE(at::equal(result, sum_in_order({in[0], in[1], in[2]}, out))) << src << numel;
    }
  }
  const auto empty = at::empty({0});
  sum_slices(empty, empty);
  EXPECT_MESSAGE(sum_slices(at::empty({3}), at::empty({7})),
                 "sum_slices: in has 7 elements; it must have a multiple of out's 3");
  EXPECT_MESSAGE(sum_slices(at::empty({3}), at::empty({0})), "in has 0 elements");
  EXPECT_MESSAGE(sum_slices(at::empty({3}, at::kDouble), at::empty({6})), "Float into Double");
}

TEST_P(FlatKernels, ConvertIsAtens) {
  const auto hard = hard_floats();
  for (const auto from : kAllTypes) {
    for (const auto to : kAllTypes) {
      std::vector<at::Tensor> inputs = {guarded_copy(hard.to(from))};
      for (const int64_t numel : kSizes) inputs.push_back(randn({numel}, from));
      for (const auto& input : inputs) {
        const auto result = guarded(input.sizes(), to);
        convert(result, input);
        EXPECT_TRUE(same_values(result, input.to(to))) << from << " to " << to;
      }
    }
  }
}

TEST_P(FlatKernels, ConvertKeepsSignsOfZeroAndDenormals) {
  const auto input = at::tensor({-0.0f, 1e-40f, -1e-40f, 0.0f, 1e-45f}, at::kFloat);
  const auto half = at::empty({5}, at::kBFloat16);
  convert(half, input);
  EXPECT_TRUE(std::signbit(half[0].item<float>()));
  EXPECT_GT(half[1].item<float>(), 0);
  EXPECT_LT(half[2].item<float>(), 0);
  const auto back = at::empty({5}, at::kFloat);
  convert(back, half);
  EXPECT_TRUE(std::signbit(back[0].item<float>()));
  EXPECT_TRUE(at::equal(back, half.to(at::kFloat)));
}

TEST_P(FlatKernels, AddIntoConvertsFirst) {
  for (const auto dst_type : {at::kFloat, at::kDouble}) {
    for (const auto src_type : kAllTypes) {
      for (const int64_t numel : kSizes) {
        const auto dst = randn({numel}, dst_type);
        const auto src = randn({numel}, src_type);
        const at::Tensor expected = dst + src.to(dst_type);
        add_into(dst, src);
        EXPECT_TRUE(at::equal(dst, expected)) << src_type << " into " << dst_type << " " << numel;
      }
    }
  }
  const auto x = randn({17}, at::kFloat);
  const at::Tensor doubled = x + x;
  add_into(x, x);
  EXPECT_TRUE(at::equal(x, doubled));
}

TEST_P(FlatKernels, SumSquaresMatchesFp64) {
  for (const auto dtype : kAllTypes) {
    for (const int64_t numel : {0, 1, 3, 17, 65536, 65537, 1000003}) {
      const auto x = randn({numel}, dtype);
      const double expected = x.to(at::kDouble).square().sum().item<double>();
      EXPECT_NEAR(sum_squares(x), expected, 1e-13 * expected) << dtype << " " << numel;
    }
  }
  // fp32 accumulators would overflow here, and lose the ones below.
  const auto large = guarded_copy(at::full({100}, 1e30f));
  EXPECT_NEAR(sum_squares(large), 1e62, 1e56);
  const auto mixed = guarded_copy(at::ones({100001}));
  mixed[0] = 1e6f;
  EXPECT_EQ(sum_squares(mixed), 1e12 + 100000);
}

TEST_P(FlatKernels, SumSquaresDependsNeitherOnThreadsNorOnTarget) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto x = randn({1000003}, dtype);
    const double here = sum_squares(x);
    const int threads = at::get_num_threads();
    at::set_num_threads(3);
    EXPECT_EQ(sum_squares(x), here);
    at::set_num_threads(threads);
    use_target(HWY_SCALAR);
    EXPECT_EQ(sum_squares(x), here);
    use_target(GetParam());
  }
}

TEST_P(FlatKernels, FlatKernelsRefuseBadArguments) {
  const auto x = randn({4, 6}, at::kFloat);
  const auto y = randn({6, 4}, at::kFloat);
  EXPECT_MESSAGE(convert(x, y.t()), "convert: src [4, 6] has strides [1, 4]");
  EXPECT_MESSAGE(convert(x, randn({5}, at::kFloat)), "convert: src has 5 elements");
  EXPECT_MESSAGE(convert(x, at::zeros({24}, at::kInt)), "Int is not supported");
  EXPECT_MESSAGE(add_into(randn({2}, at::kBFloat16), randn({2}, at::kFloat)),
                 "BFloat16 is not supported");
  EXPECT_MESSAGE(sum_squares(at::Tensor()), "x is undefined");
}

INSTANTIATE_FOR_TARGETS(FlatKernels);

}  // namespace
}  // namespace tessera::kernels
