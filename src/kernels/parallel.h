#pragma once

#include <cstdint>
#include <memory>

namespace tessera::kernels {

// Calls body(context, begin, end) on ranges that cover [0, count) once, in parallel when
// at::get_num_threads() > 1 and count > grain. The ranges depend on the thread count, so a body may
// only do work whose result does not depend on where they start.
void split_range(int64_t count, int64_t grain, void (*body)(void*, int64_t, int64_t),
                 void* context);

template <typename Body>
void for_ranges(int64_t count, int64_t grain, Body&& body) {
  split_range(
      count, grain,
      [](void* context, int64_t begin, int64_t end) {
        (*static_cast<std::remove_reference_t<Body>*>(context))(begin, end);
      },
      const_cast<void*>(static_cast<const void*>(std::addressof(body))));
}

// Elements that one thread should at least have: below this, waking the others costs more.
inline constexpr int64_t kGrainElements = 1 << 15;

// The same in rows of `width` elements.
inline int64_t grain_rows(int64_t width) {
  return width >= kGrainElements ? 1 : kGrainElements / (width < 1 ? 1 : width);
}

}  // namespace tessera::kernels
