#include "cli/progress_bar.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

namespace tessera {
namespace {

TEST(ProgressLine, SaysHowFarHowFastAndHowLong) {
  EXPECT_EQ(progress_line("verify", 1 << 30, int64_t{4} << 30, 2.0),
            "verify [#####...............]  25 %  1.00 GiB of 4.00 GiB  512 MiB/s  6 s left");
  EXPECT_EQ(progress_line("diff", 0, 102400, 0.0),
            "diff [....................]   0 %  0 KiB of 100 KiB  0 KiB/s  unknown time left");
  EXPECT_EQ(progress_line("diff", 102400, 102400, 1.0),
            "diff [####################] 100 %  100 KiB of 100 KiB  100 KiB/s  0 s left");
  EXPECT_NE(progress_line("diff", 0, 0, 1.0).find("100 %"), std::string::npos);
}

// What a process writes to its terminal.
template <typename Work>
std::string on_terminal(const char* term, Work work) {
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    setenv("TERM", term, 1);
    work();
    _exit(0);
  }
  std::string text;
  char part[4096];
  for (ssize_t got = 0; (got = read(terminal, part, sizeof part)) > 0;)
    text.append(part, static_cast<size_t>(got));
  close(terminal);
  waitpid(child, nullptr, 0);
  return text;
}

TEST(ProgressBar, IsDrawnOnATerminalAndGoneAtTheEnd) {
  const auto work = [] {
    ProgressBar bar("verify");
    const ByteProgress::Show show = bar.show();
    if (!show) return;
    for (int done = 0; done <= 100; ++done) show(done, 100);
  };
  const std::string text = on_terminal("xterm", work);
  EXPECT_NE(text.find("verify [....................]   0 %"), std::string::npos) << text;
  EXPECT_NE(text.find("verify [####################] 100 %"), std::string::npos) << text;
  EXPECT_EQ(text.find("  50 %"), std::string::npos) << "a few times a second: " << text;
  EXPECT_TRUE(text.ends_with("\r\x1b[2K")) << text;
  EXPECT_EQ(on_terminal("dumb", work), "");
}

TEST(ProgressBar, SeveralThreadsMayDraw) {
  const std::string text = on_terminal("xterm", [] {
    ProgressBar bar("import");
    const ByteProgress::Show show = bar.show();
    std::thread other([&] {
      for (int done = 0; done < 1000; ++done) show(done, 1000);
    });
    for (int done = 0; done < 1000; ++done) show(done, 1000);
    other.join();
  });
  EXPECT_TRUE(text.ends_with("\r\x1b[2K")) << text;
}

TEST(ProgressBar, NobodySeesItElsewhere) {
  // Of this test, whose stderr goes to a pipe or file under ctest, or is a terminal by hand.
  ProgressBar bar("verify");
  EXPECT_EQ(bar.show() == nullptr, isatty(STDERR_FILENO) == 0 || std::getenv("TERM") == nullptr);
}

}  // namespace
}  // namespace tessera
