// `tessera doctor` from outside, alone and on ranks of mpirun, with troubles that are made for it.
#include <sched.h>

#include <nlohmann/json.hpp>

#include "cli/cli_testing.h"

namespace tessera {
namespace {

using testing::count;
using testing::kMinimal;
using testing::Result;
using testing::run;
using testing::TempDir;

constexpr const char* kMpirun =
    "timeout 120 mpirun --allow-run-as-root --oversubscribe --bind-to none ";

std::string mpirun(int ranks) {
  return kMpirun + ("-n " + std::to_string(ranks));
}

// Two ranks, each in a working folder of its own and with more in front of the program.
Result run_two(const TempDir& dir, const std::string& arguments, const std::string& first,
               const std::string& second) {
  std::filesystem::create_directories(dir / "a");
  std::filesystem::create_directories(dir / "b");
  const std::string program = " '" TESSERA_BINARY_DIR "/tessera' " + arguments;
  return run(dir, arguments,
             kMpirun + ("-n 1 -wdir '" + dir.path().string() + "/a' " + first + program +
                        " : -n 1 -wdir '" + dir.path().string() + "/b' " + second));
}

TEST(Doctor, Alone) {
  const TempDir dir;
  const Result result = run(dir, "doctor --run-dir run");
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  for (const char* title : {"versions\n", "environment\n", "transports\n", "network\n", "devices\n",
                            "cores\n", "memory and limits\n", "clocks\n", "run folder\n",
                            "pairs of ranks", "mesh axes\n", "matrix products", "findings\n"})
    EXPECT_HAS(result.out, title);
  EXPECT_HAS(result.out, "program    tessera 0.1.0");
  EXPECT_HAS(result.out, "1 rank on 1 node, started alone: 0 errors");
  EXPECT_EQ(result.err, "");
  EXPECT_FALSE(std::filesystem::exists(dir / "run"));
}

TEST(Doctor, OnTwoAndFourRanks) {
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    const TempDir dir;
    const Result result = run(dir, "doctor --run-dir run", mpirun(ranks));
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    EXPECT_HAS(result.out, std::to_string(ranks) + " ranks on 1 node, started by mpirun: 0 errors");
    EXPECT_HAS(result.out, "MPI_THREAD_MULTIPLE");
    EXPECT_HAS(result.out, "pml ob1");
    EXPECT_HAS(result.out, "pairs of ranks, through shared memory");
    EXPECT_HAS(result.out, "all-gather");
    EXPECT_EQ(count(result.out, "findings\n"), 1);  // rank 0 alone prints
  }
}

TEST(Doctor, TheMeshOfAConfiguration) {
  const TempDir dir;
  dir.write("c.yaml", kMinimal);
  const Result result = run(dir, "doctor --config c.yaml --set parallel.tp=2", mpirun(4));
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_HAS(result.out, "tp        ranks 0-1");
  EXPECT_HAS(result.out, "dp_shard  ranks 1, 3");
  EXPECT_HAS(result.out, "runs/x");
  EXPECT_FALSE(std::filesystem::exists(dir / "runs"));
  const Result wrong = run(dir, "doctor --config c.yaml --set parallel.tp=3", mpirun(4));
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_HAS(wrong.err, "parallel.tp");
}

TEST(Doctor, JsonForPrograms) {
  const TempDir dir;
  const Result result = run(dir, "doctor --quick --json --run-dir run", mpirun(2));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json.at("facts").size(), 2u);
  EXPECT_EQ(json.at("nodes").at(0).at("ranks"), (std::vector<int>{0, 1}));
  EXPECT_EQ(json.at("folder").at("views").size(), 2u);
  EXPECT_TRUE(json.at("pairs").empty());
}

TEST(Doctor, MoreThreadsThanCores) {
  const TempDir dir;
  const Result result = run(dir, "doctor --quick", "env OMP_NUM_THREADS=1000");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_HAS(result.out, "warning  cores: rank 0 computes with 1000 threads, but may use ");
  EXPECT_HAS(result.out, "next: OMP_NUM_THREADS=");
}

TEST(Doctor, RanksOnOneCore) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  if (CPU_COUNT(&mask) < 2) GTEST_SKIP() << "there is one core";
  int core = 0;
  while (!CPU_ISSET(core, &mask)) ++core;
  const TempDir dir;
  const Result result =
      run(dir, "doctor --quick", "taskset -c " + std::to_string(core) + " " + mpirun(2));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_HAS(result.out, "are bound to the same hardware thread " + std::to_string(core) +
                             ", 2 threads in all, while nobody may use ");
}

TEST(Doctor, ARunFolderOfEachRanksOwn) {
  const TempDir dir;
  const Result result = run_two(dir, "doctor --quick --run-dir run", "", "");
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  EXPECT_HAS(result.out, "run folder: rank 1 does not see what rank 0 writes to ");
  EXPECT_HAS(result.out, ": 1 errors, ");
  EXPECT_HAS(result.out, "/b/run");
  EXPECT_HAS(result.out, "next: the run folder must be one that all ranks share");
  EXPECT_TRUE(std::filesystem::is_empty(dir / "a"));
  EXPECT_TRUE(std::filesystem::is_empty(dir / "b"));
}

TEST(Doctor, AVariableThatDiffers) {
  const TempDir dir;
  const Result result = run_two(dir, "doctor --quick", "env NCCL_IB_HCA=mlx5_7", "");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_HAS(result.out, "warning  environment: NCCL_IB_HCA: 'mlx5_7' on rank 0");
  EXPECT_HAS(result.out, "not set on rank 1");
}

// Two host names on one machine: every address is there twice.
TEST(Doctor, TwoHostsWithTheSameAddresses) {
  const TempDir dir;
  if (std::system("unshare --uts hostname tessera-n2 2>/dev/null") != 0)
    GTEST_SKIP() << "no host names of one's own here";
  if (run(dir, "doctor --quick --json").out.find("\"address\"") == std::string::npos)
    GTEST_SKIP() << "no address besides loopback";
  dir.write("as.sh", "hostname $1 && shift && exec \"$@\"\n");
  const std::string script = "unshare --uts sh '" + (dir / "as.sh").string() + "' ";
  const Result result = run_two(dir, "doctor --run-dir '" + (dir / "run").string() + "'",
                                script + "tessera-n1", script + "tessera-n2");
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_HAS(result.out, "2 ranks on 2 nodes");
  EXPECT_HAS(result.out, "warning  network: tessera-n1, tessera-n2 have the same address ");
  EXPECT_HAS(result.out, "next: mpirun --mca btl_tcp_if_exclude lo,");
  EXPECT_HAS(result.out, "1 pairs between nodes");
  EXPECT_HAS(result.out, "s to tessera-n1");
}

}  // namespace
}  // namespace tessera
