// The optimizer's moments on a disk: the same run, bit for bit.
#include <optional>

#include "base/error.h"
#include "support/folders.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

class OffloadDir : public testing::TestWithParam<int> {
 protected:
  // The build folder lies on a disk, which a system's folder for temporary files need not.
  OffloadDir() {
    setenv("TMPDIR", TESSERA_BINARY_DIR, 1);
    folder_.emplace();
    std::filesystem::create_directory(moments());
  }
  Config config(const std::string& name) const {
    Config config = tiny_config(*folder_, name);
    config.parallel.zero = GetParam();
    config.parallel.dp_shard = 2;
    config.checkpoint.every = 5;
    return config;
  }
  std::filesystem::path moments() const { return *folder_ / "moments"; }

  std::optional<TemporaryFolder> folder_;
};

TEST_P(OffloadDir, IsTheRunInMemoryBitForBitAlsoSavedAndResumed) {
  const Config in_memory = config("memory");
  Config on_disk = config("disk");
  on_disk.memory.offload_dir = moments();
  const TinyRun wanted = run(in_memory);
  on_disk.training.stop_after = 5;
  EXPECT_EQ(run(on_disk).outcome, TrainOutcome::kStoppedAfterSave);
  EXPECT_EQ(read_states(on_disk, 5), read_states(in_memory, 5));
  on_disk.training.stop_after.reset();
  const TinyRun resumed = run(on_disk);
  expect_identical(resumed, wanted);
  EXPECT_EQ(read_states(on_disk, 10), read_states(in_memory, 10));
  EXPECT_TRUE(std::filesystem::is_empty(moments()));
}

INSTANTIATE_TEST_SUITE_P(Zero, OffloadDir, testing::Values(0, 1, 2, 3));

TEST(OffloadDirMistake, NamesTheKey) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, "run");
  config.memory.offload_dir = folder / "absent";
  try {
    run(config);
    FAIL() << "no error";
  } catch (const UserError& error) {
    const std::string text = error.what();
    for (const char* part : {"no file can be made in", "absent", "(memory.offload_dir)"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace tessera
