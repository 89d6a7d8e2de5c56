// The doctor on ranks that are threads: what it finds out, tries and leaves behind.
#include "doctor/examine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <mutex>

#include "doctor/judge/judge.h"
#include "doctor/measure/measure.h"
#include "doctor/probes/probes.h"
#include "doctor/start_check.h"
#include "made_up_facts.h"
#include "parallel/comm/core/self_communicator.h"
#include "parallel/comm/shm/thread_communicator.h"
#include "support/temporary_folder.h"

namespace tessera::doctor {
namespace {

namespace fs = std::filesystem;

TEST(Facts, OfThisProcess) {
  const RankFacts facts = collect_facts(3, 1, Depth::kAll);
  EXPECT_EQ(facts.rank, 3);
  EXPECT_FALSE(facts.host.empty());
  EXPECT_FALSE(facts.kernel_run.empty());
  for (const char* name : {"program", "LibTorch", "MPI", "kernel", "glibc", "kernels"})
    EXPECT_FALSE(facts.versions.at(name).empty()) << name;
  EXPECT_FALSE(facts.cores.bound.empty());
  EXPECT_GE(facts.cores.allowed.size(), facts.cores.bound.size());
  EXPECT_GT(facts.memory.available, 0);
  EXPECT_GE(facts.memory.total, facts.memory.available);
  EXPECT_TRUE(facts.transports.thread_level.empty());  // MPI has not been started
}

TEST(Facts, AskingWhereThisProcessMayRunChangesNothing) {
  const Cores before = probe_cores(1);
  EXPECT_EQ(probe_cores(1).bound, before.bound);
}

TEST(Environment, HoldsWhatMattersAlone) {
  ::setenv("NCCL_DEBUG", "WARN", 1);
  ::setenv("OMPI_MCA_btl_tcp_if_exclude", "lo,docker0", 1);
  ::setenv("OMPI_MCA_orte_ess_node_rank", "1", 1);
  ::setenv("SLURM_PROCID", "1", 1);
  const Texts found = probe_environment();
  EXPECT_EQ(found.at("NCCL_DEBUG"), "WARN");
  EXPECT_EQ(found.at("OMPI_MCA_btl_tcp_if_exclude"), "lo,docker0");
  EXPECT_FALSE(found.contains("OMPI_MCA_orte_ess_node_rank"));
  EXPECT_FALSE(found.contains("SLURM_PROCID"));
  for (const char* name :
       {"NCCL_DEBUG", "OMPI_MCA_btl_tcp_if_exclude", "OMPI_MCA_orte_ess_node_rank", "SLURM_PROCID"})
    ::unsetenv(name);
}

class Examined : public testing::TestWithParam<int> {};

TEST_P(Examined, AllRanksFindTheSameAndLeaveNothingBehind) {
  const int ranks = GetParam();
  const TemporaryFolder folder;
  const DoctorOptions options{.run_dir = folder / "not" / "there"};
  std::mutex mutex;
  std::vector<std::string> findings(static_cast<size_t>(ranks));
  std::vector<Examination> examined(static_cast<size_t>(ranks));
  std::vector<std::string> titles;
  run_thread_ranks(ranks, [&](Communicator& world) {
    Examination found = examine(world, options, [&](const Table& table) {
      const std::lock_guard lock(mutex);
      if (world.rank() == 0) titles.push_back(table.title);
    });
    const std::lock_guard lock(mutex);
    const auto rank = static_cast<size_t>(world.rank());
    findings[rank] = text_of(found.findings);
    examined[rank] = std::move(found);
  });
  const Examination& found = examined[0];
  EXPECT_FALSE(found.has_errors()) << findings[0];
  for (const std::string& of_rank : findings) EXPECT_EQ(of_rank, findings[0]);
  EXPECT_EQ(found.nodes.size(), 1u);
  EXPECT_EQ(found.pairs.size(), static_cast<size_t>(ranks * (ranks - 1) / 2));
  for (const PairSpeed& pair : found.pairs) {
    EXPECT_GT(pair.latency_us, 0);
    EXPECT_GT(pair.bytes_per_s, 0);
  }
  EXPECT_EQ(found.axes.size(), ranks == 1 ? 0u : 1u);
  EXPECT_EQ(found.products.size(), static_cast<size_t>(2 * ranks));
  for (const ProductSpeed& product : found.products) EXPECT_GT(product.flops, 0);
  EXPECT_EQ(titles.size(), 12u);

  ASSERT_TRUE(found.folder.has_value());
  EXPECT_EQ(found.folder->error, "");
  EXPECT_EQ(found.folder->renames, 50);
  EXPECT_EQ(found.folder->odd_reads, 0);
  EXPECT_EQ(found.folder->reader, ranks == 1 ? -1 : 1);
  EXPECT_EQ(found.folder->views[0].lock, "held");
  if (ranks > 1) {
    EXPECT_EQ(found.folder->views[1].lock, "held");
  }
  EXPECT_GT(found.folder->views[0].write_bytes_per_s, 0);
  EXPECT_GT(found.folder->views[0].read_bytes_per_s, 0);
  EXPECT_TRUE(fs::is_empty(folder.path()));
  EXPECT_EQ(to_json(found).at("facts").size(), static_cast<size_t>(ranks));
}

INSTANTIATE_TEST_SUITE_P(Ranks, Examined, testing::Values(1, 2, 4),
                         [](const auto& of) { return "n" + std::to_string(of.param); });

TEST(Examine, MeasuresTheAxesOfTheMesh) {
  std::vector<AxisSpeed> axes;
  run_thread_ranks(4, [&](Communicator& world) {
    const Examination found = examine(world, {.mesh = MeshShape{1, 2, 2}});
    if (world.rank() == 0) axes = found.axes;
  });
  ASSERT_EQ(axes.size(), 4u);
  EXPECT_EQ(axes[0].axis, "tp");
  EXPECT_EQ(axes[0].ranks, (std::vector<int>{0, 1}));
  EXPECT_EQ(axes[3].axis, "dp_shard");
  EXPECT_EQ(axes[3].ranks, (std::vector<int>{1, 3}));
}

TEST(Examine, QuickMeasuresNoSpeeds) {
  const TemporaryFolder folder;
  const auto world = make_self_communicator();
  const Examination found = examine(*world, {.run_dir = folder.path(), .quick = true});
  EXPECT_TRUE(found.pairs.empty() && found.axes.empty() && found.products.empty());
  EXPECT_EQ(found.folder->views[0].write_bytes_per_s, 0);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(RunFolder, ThatCannotBeMadeIsAnError) {
  const TemporaryFolder folder;
  std::ofstream(folder / "file") << "text";
  const auto world = make_self_communicator();
  const Examination found = examine(*world, {.run_dir = folder / "file" / "run", .quick = true});
  EXPECT_TRUE(found.has_errors());
  EXPECT_NE(text_of(found.findings).find("error run folder: rank 0"), std::string::npos)
      << text_of(found.findings);
}

TEST(RunFolder, OldTrialsOfAKilledDoctorGoNewOnesStay) {
  const TemporaryFolder folder;
  fs::create_directories(folder / ".doctor-old" / "x");
  fs::create_directories(folder / ".doctor-new");
  fs::last_write_time(folder / ".doctor-old",
                      fs::file_time_type::clock::now() - std::chrono::hours(2));
  const auto world = make_self_communicator();
  static_cast<void>(try_run_folder(*world, folder.path(), {{"here", {0}}}, false));
  EXPECT_FALSE(fs::exists(folder / ".doctor-old"));
  EXPECT_TRUE(fs::exists(folder / ".doctor-new"));
}

TEST(StartCheck, AllRanksSayTheSame) {
  std::mutex mutex;
  std::vector<std::vector<std::string>> said;
  run_thread_ranks(4, [&](Communicator& world) {
    // More threads than any machine has hardware threads for.
    const auto lines = check_start(world, world.rank() == 2 ? 1 << 20 : 1);
    const std::lock_guard lock(mutex);
    said.push_back(lines);
  });
  ASSERT_EQ(said.size(), 4u);
  for (const auto& lines : said) EXPECT_EQ(lines, said[0]);
  ASSERT_FALSE(said[0].empty());
  EXPECT_EQ(said[0].back().rfind("cores: rank 2 computes with 1048576 threads", 0), 0u)
      << said[0].back();
}

TEST(StartCheck, OneRankHasNothingToCompare) {
  const auto world = make_self_communicator();
  EXPECT_TRUE(check_start(*world, 1 << 20).empty());
}

}  // namespace
}  // namespace tessera::doctor
