#include "base/process/crash_report.h"

#include <execinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <vector>

#include "base/process/stack_trace.h"

namespace tessera {
namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr int kMostFrames = 64;

// A signal handler can reach nothing but static storage.
std::array<char, 201> crash_name{"this process"};
std::atomic<const std::atomic<int64_t>*> crash_step{nullptr};
std::atomic<bool> reporting{false};

// A line that is put together without allocating.
class Line {
 public:
  void add(const char* text) {
    while (*text != '\0' && size_ < bytes_.size()) bytes_[size_++] = *text++;
  }
  void add(int64_t number) {
    std::array<char, 24> digits{};
    size_t at = digits.size() - 1;
    do digits[--at] = static_cast<char>('0' + number % 10);
    while ((number /= 10) > 0 && at > 0);
    add(&digits[at]);
  }
  void write() const { static_cast<void>(::write(STDERR_FILENO, bytes_.data(), size_) < 0); }

 private:
  std::array<char, 512> bytes_;
  size_t size_ = 0;
};

const char* name_of(int signal) {
  switch (signal) {
    case SIGSEGV:
      return "SIGSEGV";
    case SIGBUS:
      return "SIGBUS";
    case SIGFPE:
      return "SIGFPE";
    case SIGILL:
      return "SIGILL";
    default:
      return "SIGABRT";
  }
}

void on_crash(int signal) {
  // A second crash, in another thread or here, ends the process without a word.
  if (!reporting.exchange(true)) {
    Line line;
    line.add("error: ");
    line.add(crash_name.data());
    line.add(" was ended by ");
    line.add(name_of(signal));
    const std::atomic<int64_t>* const step = crash_step;
    if (step && *step > 0) {
      line.add(" after step ");
      line.add(*step);
    }
    line.add("; stack:\n");
    line.write();
    void* frames[kMostFrames];
    ::backtrace_symbols_fd(frames, ::backtrace(frames, kMostFrames), STDERR_FILENO);
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

void report_crashes() {
  prepare_stack_traces();
  // For the report of an overflow, which leaves no room on the stack itself. Used to the very end
  // of the process, so never freed.
  static auto* const own_stack = new std::vector<char>(size_t{1} << 17);
  stack_t stack{};
  stack.ss_sp = own_stack->data();
  stack.ss_size = own_stack->size();
  sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_handler = on_crash;
  action.sa_flags = SA_ONSTACK | SA_NODEFER;
  for (const int signal : kSignals) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_DFL) sigaction(signal, &action, nullptr);
  }
}

void set_crash_name(const std::string& name) {
  const size_t size = std::min(name.size(), crash_name.size() - 1);
  std::memcpy(crash_name.data(), name.data(), size);
  crash_name[size] = '\0';
}

void set_crash_step(const std::atomic<int64_t>* step) {
  crash_step = step;
}

}  // namespace tessera
