#include "kernels/checks.h"

#include "base/error.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tessera::kernels {
namespace {

std::string shape_text(at::IntArrayRef sizes) {
  return fmt::format("[{}]", fmt::join(sizes.begin(), sizes.end(), ", "));
}

}  // namespace

void check_contiguous_on(const char* kernel, at::Device device,
                         std::initializer_list<Argument> arguments) {
  for (const auto& [name, tensor] : arguments) {
    if (!tensor.defined())
      fail("kernels", "{}: {} is undefined; it must be a tensor", kernel, name);
    if (tensor.device() != device) {
      fail("kernels", "{}: {} is on {}; it must be on {}", kernel, name, tensor.device().str(),
           device.str());
    }
    if (!tensor.is_contiguous()) {
      fail("kernels", "{}: {} {} has strides {}; it must be contiguous", kernel, name,
           shape_text(tensor.sizes()), shape_text(tensor.strides()));
    }
  }
}

void check_contiguous_cpu(const char* kernel, std::initializer_list<Argument> arguments) {
  check_contiguous_on(kernel, at::kCPU, arguments);
}

void check_contiguous(const char* kernel, std::initializer_list<Argument> arguments) {
  const at::Tensor& first = arguments.begin()->tensor;
  const bool on_gpu = first.defined() && first.is_cuda();
  check_contiguous_on(kernel, on_gpu ? first.device() : at::Device(at::kCPU), arguments);
}

void check_dtype(const char* kernel, Argument argument, at::ScalarType expected) {
  check_dtype_in(kernel, argument, {expected});
}

void check_dtype_in(const char* kernel, Argument argument,
                    std::initializer_list<at::ScalarType> allowed) {
  const auto dtype = argument.tensor.scalar_type();
  if (std::find(allowed.begin(), allowed.end(), dtype) != allowed.end()) return;
  std::vector<std::string> names;
  for (const auto type : allowed) names.emplace_back(c10::toString(type));
  fail("kernels", "{}: {} is {}; it must be {}", kernel, argument.name, c10::toString(dtype),
       fmt::join(names, " or "));
}

void check_moment_dtype(const char* kernel, Argument argument, at::ScalarType master) {
  if (master == at::kFloat) {
    check_dtype_in(kernel, argument, {at::kFloat, at::kBFloat16});
  } else {
    check_dtype(kernel, argument, master);
  }
}

void check_shape(const char* kernel, Argument argument, at::IntArrayRef expected) {
  if (argument.tensor.sizes() == expected) return;
  fail("kernels", "{}: {} has shape {}; it must be {}", kernel, argument.name,
       shape_text(argument.tensor.sizes()), shape_text(expected));
}

void check_dim(const char* kernel, Argument argument, int64_t expected) {
  if (argument.tensor.dim() == expected) return;
  fail("kernels", "{}: {} has shape {}; it must have {} dims", kernel, argument.name,
       shape_text(argument.tensor.sizes()), expected);
}

void check_numel(const char* kernel, Argument argument, int64_t expected) {
  if (argument.tensor.numel() == expected) return;
  fail("kernels", "{}: {} has {} elements; it must have {}", kernel, argument.name,
       argument.tensor.numel(), expected);
}

void fail_dtype(const char* kernel, at::ScalarType dtype, const char* allowed) {
  fail("kernels", "{}: dtype {} is not supported; use one of {}", kernel, c10::toString(dtype),
       allowed);
}

}  // namespace tessera::kernels
