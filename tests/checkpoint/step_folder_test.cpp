#include "checkpoint/store/run_folder.h"
#include "checkpoint_testing.h"

namespace tessera::testing {
namespace {

class StepFolders : public Scratch {
 protected:
  // A step folder by its names alone.
  fs::path step(int64_t number, const std::string& ending = "", bool manifest = true) {
    const fs::path path = dir_ / "run/checkpoints" / (step_dir_name(number) + ending);
    fs::create_directories(path);
    if (manifest) spit(path / "manifest.json", "{}");
    return path;
  }

  fs::path run_ = dir_ / "run";
};

TEST_F(StepFolders, ARunFolderStandsForItsNewestStep) {
  step(5);
  const fs::path newest = step(100000000);  // by number, not by name
  step(20);
  step(200000000, "", /*manifest=*/false);
  step(300000000, ".partial");
  step(300000000, ".broken");
  EXPECT_EQ(newest_step_in(run_), newest);
  EXPECT_EQ(newest_step_in(run_ / "checkpoints"), newest);
  const std::string error = user_error([&] { check_step_folder(run_, "checkpoint.resume"); });
  EXPECT_TRUE(contains(error, "[checkpoint] checkpoint.resume: " + run_.string() + "; "));
  EXPECT_TRUE(contains(error, "the newest is " + newest.string()));
  // With the slash that a shell's completion leaves.
  EXPECT_TRUE(contains(user_error([&] { check_step_folder(run_ / "checkpoints/"); }),
                       "the newest is " + newest.string()));
}

TEST_F(StepFolders, AFileStandsForTheFolderThatHoldsIt) {
  const fs::path path = step(5);
  spit(run_ / "checkpoints/latest", "step-00000005");
  for (const fs::path& file : {path / "manifest.json", run_ / "checkpoints/latest"})
    EXPECT_TRUE(contains(user_error([&] { check_step_folder(file); }),
                         "a step folder is wanted, such as " + path.string()));
}

TEST_F(StepFolders, AHuggingFaceFolderIsNamed) {
  fs::create_directories(dir_ / "hf");
  spit(dir_ / "hf/config.json", "{}");
  EXPECT_TRUE(contains(user_error([&] { check_step_folder(dir_ / "hf"); }),
                       "checkpoint.init_from takes it as it is, and tessera checkpoint import "
                       "makes a step folder of it"));
  EXPECT_FALSE(is_hugging_face_folder(dir_ / "nothing"));
  EXPECT_FALSE(is_hugging_face_folder(step(5)));
  EXPECT_TRUE(is_hugging_face_folder(dir_ / "hf"));
  EXPECT_TRUE(contains(user_error([&] { check_step_folder(dir_ / "hf/config.json"); }),
                       "it is a file of the Hugging Face folder " + (dir_ / "hf").string()));
}

TEST_F(StepFolders, AStepFolderAndWhatIsNothingOfTheKindPass) {
  check_step_folder(step(5));
  check_step_folder(dir_ / "nothing");
  fs::create_directories(dir_ / "other/data");
  check_step_folder(dir_ / "other");
  spit(dir_ / "other/file", "");
  check_step_folder(dir_ / "other/file");
  EXPECT_EQ(newest_step_in(dir_ / "other"), std::nullopt);
}

TEST_F(StepFolders, ARunThatHasSavedNothingSaysSo) {
  step(5, ".partial");
  EXPECT_TRUE(contains(user_error([&] { check_step_folder(run_); }), "without any checkpoint"));
}

}  // namespace
}  // namespace tessera::testing
