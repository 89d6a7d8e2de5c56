#include "base/process/stack_trace.h"

#include <dlfcn.h>
#include <execinfo.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <string_view>
#include <typeinfo>

namespace tessera {
namespace {

constexpr int kMostFrames = 48;

// The unwinder hands the place of a throw to nobody: it must be kept before the stack goes.
struct ThrowPlace {
  std::array<void*, kMostFrames> frames;
  int count = 0;
};
thread_local ThrowPlace last_throw;
std::atomic<bool> prepared{false};

// Errors of this program say where they come from in words.
bool is_ours(const std::type_info& type) {
  return std::string_view(type.name()).find("7tessera") != std::string_view::npos;
}

}  // namespace

void prepare_stack_traces() {
  void* frame = nullptr;
  ::backtrace(&frame, 1);
  prepared = true;
}

std::string last_throw_stack() {
  if (last_throw.count == 0) return "";
  char** const names = ::backtrace_symbols(last_throw.frames.data(), last_throw.count);
  if (!names) return "";
  std::string text = "thrown at:";
  for (int i = 1; i < last_throw.count; ++i) text += std::string("\n  ") + names[i];  // 0: below
  std::free(names);
  return text;
}

}  // namespace tessera

// Stands before the C++ library's function of this name, through which every throw goes.
extern "C" [[noreturn]] void __cxa_throw(void* object, void* type, void (*destroy)(void*)) {
  using Throw = void (*)(void*, void*, void (*)(void*));
  static const auto next = reinterpret_cast<Throw>(::dlsym(RTLD_NEXT, "__cxa_throw"));
  if (tessera::prepared && !tessera::is_ours(*static_cast<const std::type_info*>(type)))
    tessera::last_throw.count =
        ::backtrace(tessera::last_throw.frames.data(), tessera::kMostFrames);
  next(object, type, destroy);
  std::abort();  // not reached
}
