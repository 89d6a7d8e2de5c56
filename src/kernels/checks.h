#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>

// Argument checks of the kernels, and the step from a run-time dtype to a C++ type.
namespace tessera::kernels {

// An argument with its name in kernels.h, for messages.
struct Argument {
  const char* name;
  const at::Tensor& tensor;
};

// Each throws an Error that names the kernel, the argument, its value and what is expected.
void check_contiguous_cpu(const char* kernel, std::initializer_list<Argument> arguments);
// For kernels that GPUs have as well: all on the CPU, or all on one GPU.
void check_contiguous(const char* kernel, std::initializer_list<Argument> arguments);
void check_contiguous_on(const char* kernel, at::Device device,
                         std::initializer_list<Argument> arguments);
void check_dtype(const char* kernel, Argument argument, at::ScalarType expected);
void check_dtype_in(const char* kernel, Argument argument,
                    std::initializer_list<at::ScalarType> allowed);
// A moment is of the master's dtype, or bf16 beside fp32.
void check_moment_dtype(const char* kernel, Argument argument, at::ScalarType master);
void check_shape(const char* kernel, Argument argument, at::IntArrayRef expected);
void check_dim(const char* kernel, Argument argument, int64_t expected);
void check_numel(const char* kernel, Argument argument, int64_t expected);

template <typename T>
struct Type {
  using type = T;
};

[[noreturn]] void fail_dtype(const char* kernel, at::ScalarType dtype, const char* allowed);

// Calls body(Type<T>{}) with the type of an activation: float, double, c10::BFloat16 or c10::Half.
template <typename Body>
void with_any_type(const char* kernel, at::ScalarType dtype, Body body) {
  switch (dtype) {
    case at::kFloat:
      return body(Type<float>{});
    case at::kDouble:
      return body(Type<double>{});
    case at::kBFloat16:
      return body(Type<c10::BFloat16>{});
    case at::kHalf:
      return body(Type<c10::Half>{});
    default:
      fail_dtype(kernel, dtype, "Float, Double, BFloat16, Half");
  }
}

// Calls body(Type<T>{}, Type<W>{}) with the types of an activation and of a weight that is of the
// same type or, beside halves, fp32.
template <typename Body>
void with_weight_type(const char* kernel, at::ScalarType dtype, at::ScalarType weight, Body body) {
  with_any_type(kernel, dtype, [&](auto type) {
    if constexpr (sizeof(typename decltype(type)::type) == 2) {
      if (weight == at::kFloat) return body(type, Type<float>{});
    }
    body(type, type);
  });
}

// Calls body(Type<T>{}) with float or double.
template <typename Body>
void with_wide_type(const char* kernel, at::ScalarType dtype, Body body) {
  switch (dtype) {
    case at::kFloat:
      return body(Type<float>{});
    case at::kDouble:
      return body(Type<double>{});
    default:
      fail_dtype(kernel, dtype, "Float, Double");
  }
}

}  // namespace tessera::kernels
