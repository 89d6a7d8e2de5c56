// As save_faults_test.cpp, with faults that are real where this machine lets a test make them: a
// disk that is full, a limit on the size of files, a folder that loses its permission. Where it
// does not, faulty_calls.cpp stands in for them.
#include <sys/mount.h>
#include <sys/stat.h>

#include "training/save_faults.h"

namespace tessera {
namespace {

class RealSaveFaults : public SaveFaults {
 protected:
  // As another user than root, whom permissions bind; empty where that user cannot start the
  // program.
  std::string as_nobody() const {
    if (geteuid() != 0) return "exec";
    const std::string user = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    const bool possible =
        std::system((user + " test -x '" TESSERA_BINARY_DIR "/tessera'").c_str()) == 0;
    return possible ? "exec " + user : "";
  }

  bool until(const std::function<bool()>& condition) const {
    for (int i = 0; i < 6000; ++i, pause(10))
      if (condition()) return true;
    return false;
  }
};

// ---- A disk that is full for real -------------------------------------------------------------

// A disk of so many bytes at a path, where this process may mount one.
class SmallDisk {
 public:
  SmallDisk(fs::path path, int64_t bytes) : path_(std::move(path)) {
    fs::create_directories(path_);
    mounted_ = mount("tmpfs", path_.c_str(), "tmpfs", 0, size(bytes).c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool mounted() const { return mounted_; }
  void grow(int64_t bytes) {
    if (!mounted_) return;
    EXPECT_EQ(mount("tmpfs", path_.c_str(), "tmpfs", MS_REMOUNT, size(bytes).c_str()), 0);
  }

 private:
  static std::string size(int64_t bytes) { return "size=" + std::to_string(bytes); }
  fs::path path_;
  bool mounted_ = false;
};

int64_t bytes_below(const fs::path& folder) {
  int64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) bytes += static_cast<int64_t>(entry.file_size());
  return bytes;
}

// The first save fits, the second does not.
TEST_F(RealSaveFaults, OnAFullDisk) {
  const std::string large = " --set model.hidden_size=128 --set model.intermediate_size=256";
  fs::remove_all(folder_ / "whole");
  ASSERT_EQ(train("", 1, keys(true, "stop", 4) + large + " --set run.dir=whole").exit_code, 0);
  const std::string whole = trace_of(folder_ / "whole");
  const int64_t one = bytes_below(folder_ / "whole/checkpoints/step-00000004");
  ASSERT_GT(one, 1 << 20);
  for (const std::string on_error : {"stop", "warn"}) {
    for (const bool async : {true, false}) {
      SCOPED_TRACE(on_error + (async ? ", beside training" : ""));
      fs::remove_all(folder_ / "run");
      SmallDisk disk(folder_ / "run", one * 3 / 2);
      const std::string faults = disk.mounted() ? "" : "write *step-0000000[234].partial* ENOSPC";
      Result result = train(faults, 1, keys(async, on_error, 4) + large);
      EXPECT_CODE(result, 1);
      EXPECT_HAS(result, "step-00000002");
      EXPECT_HAS(result, "No space left on device");
      EXPECT_TRUE(has("step-00000001/manifest.json"));
      EXPECT_EQ(latest(), "step-00000001\n");
      EXPECT_EQ(unfinished(), std::vector<std::string>{});
      if (on_error == "warn") {
        EXPECT_HAS(result, "step-00000004");
        EXPECT_GE(warned_lines(result), 1);
      }
      disk.grow(one * 4);
      result = train("", 1, keys(async, on_error, 4) + large);
      EXPECT_CODE(result, 0);
      EXPECT_HAS(result, "step-00000001 at step 1");
      EXPECT_EQ(trace_of(folder_ / "run"), whole);
    }
  }
}

// ---- A limit on the size of files -------------------------------------------------------------

// SIGXFSZ ends a program that does not ignore it.
TEST_F(RealSaveFaults, BeyondALimitOnFileSizes) {
  const std::string large = " --set model.hidden_size=128 --set model.intermediate_size=256";
  for (const std::string on_error : {"stop", "warn"}) {
    for (const bool async : {true, false}) {
      SCOPED_TRACE(on_error + (async ? ", beside training" : ""));
      fs::remove_all(folder_ / "run");
      const std::string line = "train c.yaml " + keys(async, on_error) + large;
      // In blocks of 512 bytes or 1024, as the shell has them: at most a quarter of a checkpoint.
      const Result result = start(line, "", 1, "ulimit -f 400 && exec");
      EXPECT_CODE(result, 1);
      EXPECT_HAS(result, "step-00000001");
      EXPECT_HAS(result, "File too large");
      EXPECT_EQ(unfinished(), std::vector<std::string>{});
      EXPECT_EQ(count(result.text, "step-00000003") > 0, on_error == "warn") << result.text;
      EXPECT_CODE(start(line), 0);
      EXPECT_TRUE(has("step-00000003"));
    }
  }
}

// ---- A folder that may not be written to any more ---------------------------------------------

TEST_F(RealSaveFaults, InAFolderThatLosesItsPermission) {
  const std::string shell = as_nobody();
  const std::string endless =
      "--set training.steps=1000000 --set schedule.steps=1000000 --set training.log_every=20 ";
  fs::permissions(folder_.path(), fs::perms::all);
  for (const std::string on_error : {"stop", "warn"}) {
    SCOPED_TRACE(on_error);
    fs::remove_all(folder_ / "run");
    // Where no other user can start the program, the calls of step 4 and later fail instead.
    const std::string faults =
        shell.empty()
            ? "mkdir *step-0000000[4-9].partial EACCES; mkdir *step-000000[1-9]?.partial EACCES"
            : "";
    const pid_t job =
        background("train c.yaml " + endless + "--set checkpoint.on_error=" + on_error, faults, 1,
                   shell.empty() ? "exec" : shell);
    ASSERT_TRUE(until([&] { return has("step-00000003/manifest.json") || has("step-00000004"); }));
    if (!shell.empty()) fs::permissions(checkpoints_, static_cast<fs::perms>(0555));
    const auto output = [&] { return read_small_file(folder_ / "background.txt", 1 << 22); };
    int status = 0;
    if (on_error == "stop") {
      ASSERT_EQ(waitpid(job, &status, 0), job);
      EXPECT_EQ(WEXITSTATUS(status), 1) << output();
    } else {
      EXPECT_TRUE(until([&] { return count(output(), "Permission denied") >= 3; })) << output();
      EXPECT_EQ(waitpid(job, &status, WNOHANG), 0) << output();
    }
    EXPECT_NE(output().find("Permission denied"), std::string::npos) << output();
    EXPECT_NE(output().find("checkpoints/step-"), std::string::npos) << output();
    const std::string kept = latest();
    EXPECT_TRUE(has(kept.substr(0, kept.size() - 1) + "/manifest.json"));
    fs::permissions(checkpoints_, fs::perms::all);
    if (on_error == "warn") {
      EXPECT_TRUE(until([&] { return latest() != kept; })) << output();
      kill(job, SIGTERM);
      ASSERT_EQ(waitpid(job, &status, 0), job);
      EXPECT_EQ(WEXITSTATUS(status), 3) << output();
    }
    // It goes on, with an unbroken run's numbers.
    const int64_t steps = std::stoll(latest().substr(5)) + 2;
    const std::string more = endless + "--set training.steps=" + std::to_string(steps) +
                             " --set checkpoint.on_error=" + on_error;
    EXPECT_CODE(start("train c.yaml " + more, "", 1, shell.empty() ? "exec" : shell), 0);
    fs::remove_all(folder_ / "whole");
    EXPECT_CODE(train("", 1, more + " --set run.dir=whole --set checkpoint.every=0"), 0);
    EXPECT_EQ(trace_of(folder_ / "run"), trace_of(folder_ / "whole"));
  }
}

}  // namespace
}  // namespace tessera
