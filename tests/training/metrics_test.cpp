// What a file of metrics may look like when a run goes on with it.
#include "training/output/metrics.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class Metrics : public testing::Test {
 protected:
  // The file after a resume at step 2.
  std::string resumed(const std::string& before) {
    warnings.clear();
    std::ofstream(file, std::ios::binary) << before;
    MetricsFile metrics(file, 2, false, [&](const std::string& text) { warnings.push_back(text); });
    return text_of(file);
  }

  TemporaryFolder folder;
  const std::filesystem::path file = folder / "metrics.jsonl";
  std::vector<std::string> warnings;
  const std::string one = "{\"step\": 1, \"loss\": 3.5}\n", two = "{\"step\": 2, \"loss\": 3.25}\n";
};

TEST_F(Metrics, LinesOfLaterStepsGoWithoutAWord) {
  EXPECT_EQ(resumed(one + two + "{\"step\": 3, \"loss\": 3.0}\n"), one + two);
  EXPECT_TRUE(warnings.empty());
}

TEST_F(Metrics, EmptyLinesAreDropped) {
  EXPECT_EQ(resumed("\n" + one + "\n  \n" + two + "\n"), one + two);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("4 empty lines dropped"), std::string::npos) << warnings[0];
}

TEST_F(Metrics, NulBytesThatACrashLeftAreDropped) {
  const std::string nuls(64, '\0');
  EXPECT_EQ(resumed(one + nuls + two + nuls), one + two);
  EXPECT_EQ(resumed(one + two + nuls + "\n" + nuls), one + two);
  ASSERT_EQ(warnings.size(), 1U);
}

TEST_F(Metrics, CarriageReturnsAndALastLineWithoutItsEndAreTaken) {
  EXPECT_EQ(resumed("{\"step\": 1}\r\n{\"step\": 2}"), "{\"step\": 1}\n{\"step\": 2}\n");
  EXPECT_TRUE(warnings.empty());
}

TEST_F(Metrics, ATornLastLineIsDropped) {
  EXPECT_EQ(resumed(one + two + "{\"step\": 3, \"lo"), one + two);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("its last line was not written to its end"), std::string::npos);
}

TEST_F(Metrics, LinesThatAreNoMetricsAreKeptBeside) {
  EXPECT_EQ(resumed(one + "a note of mine\n" + two + "{\"stop\": 1}\n"), one + two);
  EXPECT_EQ(text_of(file.string() + ".unreadable"), "a note of mine\n{\"stop\": 1}\n");
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("line 2, line 4 of it are no metrics; moved to"), std::string::npos)
      << warnings[0];
}

// So that a resume from there still tells of it.
TEST_F(Metrics, ARollbackBelongsToTheStepThatItWentBackTo) {
  {
    MetricsFile metrics(file, 0, false, [](const std::string&) {});
    for (int64_t step = 1; step <= 3; ++step) {
      StepMetrics line;
      line.step = step;
      metrics.write(line);
    }
    metrics.write(RollbackEvent{4, 2, 48, 64, "w"});
  }
  MetricsFile metrics(file, 2, false, [](const std::string&) {});
  const std::string text = text_of(file);
  EXPECT_NE(text.find("\"event\":\"rollback\""), std::string::npos) << text;
  EXPECT_EQ(text.find("\"step\":3"), std::string::npos) << text;
}

// A full disk: the file system of this test has a limit of its own.
TEST_F(Metrics, LinesThatCannotBeWrittenAreKeptWhereAskedFor) {
  struct rlimit before {};
  getrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_IGN);
  const auto limit = [&](rlim_t bytes) {
    const struct rlimit now { bytes, before.rlim_max };
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &now), 0);
  };
  const auto line = [](int64_t step) {
    StepMetrics metrics;
    metrics.step = step;
    return metrics;
  };
  for (const bool keep : {false, true}) {
    std::error_code ignored;
    std::filesystem::remove(file, ignored);
    std::vector<std::string> said;
    MetricsFile metrics(file, 0, keep, [&](const std::string& text) { said.push_back(text); });
    metrics.write(line(1));
    metrics.sync();
    limit(std::filesystem::file_size(file) + 10);
    if (!keep) {
      EXPECT_THROW(metrics.write(line(2)), Error);
      limit(before.rlim_cur);
      continue;
    }
    metrics.write(line(2));
    metrics.write(SaveMetrics{2, 1.0, 2.0, "no space"});
    EXPECT_THROW(metrics.sync(), Error);
    EXPECT_EQ(said.size(), 1U);
    limit(before.rlim_cur);
    metrics.write(line(3));
    metrics.sync();
    const std::string text = text_of(file);
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4) << text;
    for (const char* part :
         {"{\"step\":1,", "\n{\"step\":2,\"loss\"", "\n{\"step\":3,",
          "\"save_stall_ms\":1.0,\"save_ms\":2.0,\"save_failed\":\"no space\"}\n"})
      EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

}  // namespace
}  // namespace tessera
