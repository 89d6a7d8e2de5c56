// Ranks that have read something else under the same name: they say so and end, all with the same
// exit code. Of one process each rank is a thread; where files matter, each is a process in a
// working folder of its own.
#include "training/start/rank_agreement.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "base/error.h"
#include "base/process/host_name.h"
#include "config/save.h"
#include "support/error_of.h"
#include "support/folders.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

std::string error_on_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  return error_of([&] { run_thread_ranks(ranks, body); });
}

TEST(RankAgreement, SaysNothingWhereAllHaveReadTheSame) {
  const std::string error = error_on_ranks(4, [](Communicator& world) {
    check_same_on_all_ranks({{"data.train", "u8 7 tokens", "a"}}, world);
    check_same_on_all_ranks({}, world);
    read_on_all_ranks(world, [] {});
  });
  EXPECT_EQ(error, "no error");
}

TEST(RankAgreement, NamesTheRankTheKeyAndBothFiles) {
  const std::string error = error_on_ranks(4, [](Communicator& world) {
    const std::string of_rank = world.rank() == 2 ? "u8 8 tokens" : "u8 7 tokens";
    check_same_on_all_ranks({{"data.train", "u8 9 tokens", "/a"}, {"data.valid", of_rank, "/b"}},
                            world);
  });
  EXPECT_NE(error.find("rank 2 sees another data.valid than rank 0"), std::string::npos) << error;
  EXPECT_NE(error.find("/b: u8 8 tokens"), std::string::npos) << error;
  EXPECT_NE(error.find("/b: u8 7 tokens"), std::string::npos) << error;
  EXPECT_NE(error.find("on host "), std::string::npos) << error;
}

TEST(RankAgreement, ARankThatHasMoreOrLessIsNamedToo) {
  for (const int odd : {0, 1}) {
    const std::string error = error_on_ranks(2, [&](Communicator& world) {
      std::vector<Sight> sights = {{"data.train", "x", "/a"}};
      if (world.rank() == odd) sights.push_back({"data.train", "y", "/b"});
      check_same_on_all_ranks(sights, world);
    });
    EXPECT_NE(error.find("rank 1"), std::string::npos) << error;
    EXPECT_NE(error.find("/b: y"), std::string::npos) << error;
  }
}

TEST(RankAgreement, AnErrorOfOneRankIsEveryonesWithHostAndFolder) {
  const std::string error = error_on_ranks(2, [](Communicator& world) {
    read_on_all_ranks(world, [&] {
      if (world.rank() == 1) fail_user("data", "x.bin: not there");
    });
  });
  EXPECT_NE(error.find("x.bin: not there; host "), std::string::npos) << error;
  EXPECT_NE(error.find("working folder /"), std::string::npos) << error;
  EXPECT_NE(error.find("(on rank 1)"), std::string::npos) << error;
}

// Two processes in folders a and b with the same configuration, in which paths are relative.
class TwoFolders : public testing::Test {
 protected:
  TwoFolders() {
    for (const char* name : {"a", "b"}) {
      std::filesystem::create_directories(folder_ / name);
      write_tokens(folder_ / name / "tokens", 100 * 16 + 1);
      write_tokens(folder_ / name / "valid", 40 * 16 + 1);
    }
    config_ = tiny_config(folder_, "unused");
    config_.run.dir = folder_ / "run";
    config_.data.train = {"tokens"};
    config_.data.valid = {"valid"};
    config_.eval.every = 1;
    config_.training.steps = 1;
    config_.parallel.dp_shard = 2;
    config_.schedule.warmup_steps = 0;
  }

  // Starts both, and expects exit code `code` and each of `texts` in what they say.
  void expect(int code, const std::vector<std::string>& texts) {
    for (const char* name : {"a", "b"})
      if (!std::filesystem::exists(folder_ / name / "c.yaml"))
        std::ofstream(folder_ / name / "c.yaml") << to_yaml(config_);
    const std::string tessera = std::string(TESSERA_BINARY_DIR) + "/tessera train c.yaml";
    const std::string options = "--allow-run-as-root --oversubscribe --bind-to none -n 1 -wdir '";
    const std::string log = folder_ / "log";
    const std::string command = "OMP_NUM_THREADS=1 " TESSERA_MPIRUN " " + options +
                                (folder_ / "a").string() + "' " + tessera + " : " + "-n 1 -wdir '" +
                                (folder_ / "b").string() + "' " + tessera + " >'" + log + "' 2>&1";
    const int status = std::system(command.c_str());
    std::ostringstream output;
    output << std::ifstream(log).rdbuf();
    EXPECT_EQ(WEXITSTATUS(status), code) << output.str();
    for (const std::string& text : texts)
      EXPECT_NE(output.str().find(text), std::string::npos) << text << "\n" << output.str();
  }

  std::string in(const char* folder, const char* name) const {
    return std::filesystem::canonical(folder_ / folder) / name;
  }

  TemporaryFolder folder_;
  Config config_;
};

TEST_F(TwoFolders, WithEqualFilesTrain) {
  expect(0, {"done: 1 steps"});
}

TEST_F(TwoFolders, OtherTokensAreFound) {
  write_tokens(folder_ / "b/tokens", 100 * 16 + 17);
  expect(2, {"rank 1 sees another data.train than rank 0", in("a", "tokens"), in("b", "tokens")});
}

TEST_F(TwoFolders, OtherValidationTokensAreFound) {
  write_tokens(folder_ / "b/valid", 41 * 16 + 1);
  expect(2, {"rank 1 sees another data.valid than rank 0", in("b", "valid")});
}

TEST_F(TwoFolders, AFileThatOneRankLacksIsNamedWithItsFolder) {
  std::filesystem::remove(folder_ / "b/tokens.bin");
  expect(2, {"tokens.bin", "working folder " + std::filesystem::canonical(folder_ / "b").string(),
             "(on rank 1 (" + host_name() + "))"});
}

TEST_F(TwoFolders, AnotherModelUnderTheSameNameIsFound) {
  nlohmann::json model = config_.model->hf_config(16);
  for (const char* name : {"a", "b"}) {
    std::ofstream(folder_ / name / "model.json") << model.dump();
    Config config = config_;
    std::string yaml = to_yaml(config);
    const size_t begin = yaml.find("model:\n"), end = yaml.find("parallel:\n");
    yaml.replace(begin, end - begin, "model: {config: model.json}\n");
    std::ofstream(folder_ / name / "c.yaml") << yaml;
    model["rms_norm_eps"] = 0.25;
  }
  expect(2, {"rank 1 has read another configuration than rank 0: model.rms_norm_eps: 0.25"});
}

TEST(RankAgreement, WhatAModelsFileSaysBesideItsKeysIsCompared) {
  const TemporaryFolder folder;
  const Config config = tiny_config(folder, "run");
  const std::string error = error_on_ranks(2, [&](Communicator& world) {
    Config own = config;
    own.model.set_source({{"eos_token_id", world.rank()}});
    check_same_on_all_ranks(sights_of(own), world);
  });
  EXPECT_NE(error.find("rank 1 has read another configuration than rank 0: the contents of "
                       "model.config"),
            std::string::npos)
      << error;
}

TEST_F(TwoFolders, ARunFolderOfEachRanksOwnIsFoundAtTheStart) {
  config_.run.dir = "run";
  expect(2, {"a file that rank 0 has just written into the run folder is not there", in("b", "run"),
             "run.dir must be a folder that all ranks share"});
}

TEST_F(TwoFolders, OtherWeightsToStartFromAreFound) {
  for (const char* name : {"a", "b"}) {
    Config source = tiny_config(folder_, std::string("source-") + name);
    source.training.steps = 1;
    source.run.seed = name[0] == 'a' ? 1 : 2;
    run(source);
    std::filesystem::rename(std::filesystem::path(source.run.dir) / "checkpoints/step-00000001",
                            folder_ / name / "weights");
  }
  config_.checkpoint.init_from = "weights";
  expect(2, {"rank 1 sees another checkpoint than rank 0", in("a", "weights"), in("b", "weights")});
}

}  // namespace
}  // namespace tessera
