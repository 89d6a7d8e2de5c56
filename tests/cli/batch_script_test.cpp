#include "cli/batch_script.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tessera {
namespace {

BatchScript example() {
  BatchScript script;
  script.nodes = {2, 2};
  script.ranks_per_node = 4;
  script.cpus_per_rank = 8;
  script.train_script = "/repo/launch/train.sbatch";
  script.program = "/repo/build/release/tessera";
  script.arguments = {"c.yaml", "--set", "run.dir=runs/it's $X"};
  return script;
}

std::string refusal(const BatchScript& script) {
  try {
    script.text();
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(BatchScript, HoldsTheOptionsOfSlurm) {
  BatchScript script = example();
  script.memory_mib = 4096;
  script.memory_reason = "why";
  script.options = {"--partition=long", "--array=1-3"};
  EXPECT_EQ(script.text(),
            "#!/usr/bin/env bash\n"
            "# Written by `tessera launch sbatch`.\n"
            "#SBATCH --job-name=tessera\n"
            "#SBATCH --nodes=2\n"
            "#SBATCH --ntasks-per-node=4\n"
            "#SBATCH --cpus-per-task=8\n"
            "# why\n"
            "#SBATCH --mem=4096M\n"
            "#SBATCH --time=1:00:00\n"
            "#SBATCH --signal=B:USR1@120\n"
            "#SBATCH --requeue\n"
            "#SBATCH --open-mode=append\n"
            "#SBATCH --output=tessera-%j.log\n"
            "#SBATCH --partition=long\n"
            "#SBATCH --array=1-3\n"
            "\n"
            "# A request to stop that comes while the rest is read is not lost.\n"
            "stop_asked=false\n"
            "trap stop_asked=true USR1\n"
            "export TESSERA_BIN=${TESSERA_BIN:-/repo/build/release/tessera}\n"
            "set -- c.yaml --set 'run.dir=runs/it'\\''s $X'\n"
            "# shellcheck source=/dev/null\n"
            "source /repo/launch/train.sbatch\n");
  script.gpus_per_node = 4;
  script.nodes = {2, 4};
  script.options = {"--output=x.log"};
  const std::string text = script.text();
  EXPECT_NE(text.find("\n#SBATCH --nodes=2-4\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n#SBATCH --gpus-per-node=4\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("tessera-%j.log"), std::string::npos) << text;
}

TEST(BatchScript, RefusesTimesThatSlurmReadsOtherwise) {
  for (const char* time : {"90", "1:30", "1:00:00", "2-0", "2-12:30", "1-00:00:00"}) {
    BatchScript script = example();
    script.time = time;
    EXPECT_EQ(refusal(script), "accepted") << time;
  }
  for (const char* time :
       {"", "2h", "1:60:00", "1:00:00:00", "-5", "1-", "0:00", "1:00:00\n#SBATCH"}) {
    BatchScript script = example();
    script.time = time;
    EXPECT_NE(refusal(script).find("--time: "), std::string::npos) << time;
  }
}

TEST(BatchScript, RefusesOptionsThatAreNoneOrItsOwn) {
  for (const char* option : {"partition=gpu", "", "--mem=4G", "-N 2", "--time=5", "--signal=TERM",
                             "--no-requeue", "--partition=gpu\nrm -rf /"}) {
    BatchScript script = example();
    script.options = {option};
    EXPECT_NE(refusal(script).find("--sbatch: "), std::string::npos) << option;
  }
  BatchScript script = example();
  script.options = {"--mail-type=END", "-A me", "--mem-bind=local"};
  EXPECT_EQ(refusal(script), "accepted");
}

TEST(BatchScript, NodeRanges) {
  EXPECT_EQ(NodeRange::parse("4").text(), "4");
  const NodeRange range = NodeRange::parse("2-4");
  EXPECT_EQ(range.fewest, 2);
  EXPECT_EQ(range.most, 4);
  EXPECT_EQ(range.text(), "2-4");
  for (const char* text : {"", "0", "-2", "4-2", "2-", "x", "2-4-6", "2 "})
    EXPECT_THROW(NodeRange::parse(text), UserError) << text;
}

TEST(BatchScript, MemoryOfARank) {
  constexpr int64_t kGib = int64_t{1} << 30;
  EXPECT_EQ(rank_memory_mib(kGib, false), 1024 + 2048);
  EXPECT_EQ(rank_memory_mib(1, false), 1024 + 1);
  EXPECT_EQ(rank_memory_mib(kGib, true), 6144 + 1024);
}

TEST(BatchScript, ShellWords) {
  EXPECT_EQ(shell_word("a.b=1"), "a.b=1");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("$(x)'y"), "'$(x)'\\''y'");
}

}  // namespace
}  // namespace tessera
