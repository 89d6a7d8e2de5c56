// What the doctor makes of numbers: made-up nodes, each with one trouble.
#include "doctor/judge/judge.h"

#include <gtest/gtest.h>

#include "made_up_facts.h"

namespace tessera::doctor {
namespace {

#define EXPECT_HAS(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << "no \"" << (part) << "\" in: " << (text)

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(Judge, HealthyNodesGiveNoFinding) {
  for (const auto& [nodes, ranks] : {std::pair(1, 1), {1, 4}, {2, 2}, {3, 8}}) {
    const auto facts = made_up_facts(nodes, ranks);
    const auto places = nodes_of(facts);
    ASSERT_EQ(places.size(), static_cast<size_t>(nodes));
    Findings all;
    for (const Findings& some :
         {judge_versions(facts), judge_environment(facts), judge_transports(facts),
          judge_network(facts, places), judge_cores(facts, places, true),
          judge_limits(facts, places, kSharedBeforeStart), judge_devices(facts, places),
          judge_clocks(std::vector<double>(facts.size(), 0.9), facts, places)})
      all.insert(all.end(), some.begin(), some.end());
    EXPECT_EQ(text_of(all), "");
  }
}

TEST(JudgeVersions, AnotherProgramIsAnErrorAnotherLibraryAWarningAnotherKernelAllRight) {
  auto facts = made_up_facts(2, 2);
  for (const int rank : {2, 3}) {
    facts[static_cast<size_t>(rank)].versions["program"] = "tessera 0.0.9";
    facts[static_cast<size_t>(rank)].versions["LibTorch"] = "2.7.0";
    facts[static_cast<size_t>(rank)].versions["kernel"] = "5.10";
  }
  const Findings findings = judge_versions(facts);
  ASSERT_EQ(findings.size(), 3u) << text_of(findings);
  EXPECT_EQ(findings[0].level, Level::kError);
  EXPECT_EQ(findings[0].what,
            "program: tessera 0.1.0 on ranks 0-1 (n1), tessera 0.0.9 on ranks 2-3 (n2)");
  EXPECT_EQ(findings[1].level, Level::kWarning);
  EXPECT_EQ(findings[1].what, "LibTorch: none on ranks 0-1 (n1), 2.7.0 on ranks 2-3 (n2)");
  EXPECT_EQ(findings[2].level, Level::kOk);
  EXPECT_HAS(findings[2].what, "kernel: 6.1 on ranks 0-1 (n1), 5.10 on ranks 2-3 (n2)");
}

TEST(JudgeEnvironment, NamesTheVariableTheValuesAndTheRanks) {
  auto facts = made_up_facts(2, 2);
  facts[3].environment["NCCL_IB_HCA"] = "mlx5_0";
  facts[1].environment["OMP_NUM_THREADS"] = "8";
  const Findings findings = judge_environment(facts);
  ASSERT_EQ(findings.size(), 2u) << text_of(findings);
  EXPECT_EQ(findings[0].what,
            "NCCL_IB_HCA: not set on ranks 0-2 (n1 and others), 'mlx5_0' on rank 3 (n2)");
  EXPECT_EQ(findings[1].what,
            "OMP_NUM_THREADS: '2' on ranks 0, 2-3 (n1 and others), '8' on rank 1 (n1)");
  EXPECT_HAS(findings[1].next, "mpirun -x OMP_NUM_THREADS");
}

// docker0 has the same address on every node that runs Docker.
std::vector<RankFacts> with_docker(int nodes) {
  auto facts = made_up_facts(nodes, 1);
  for (RankFacts& rank : facts)
    rank.addresses.push_back({"docker0", "172.17.0.1", "172.17.0.0/16", 0});
  return facts;
}

TEST(JudgeNetwork, AnAddressThatTwoNodesHaveAlikeIsADanger) {
  const auto facts = with_docker(2);
  const Findings findings = judge_network(facts, nodes_of(facts));
  ASSERT_EQ(findings.size(), 1u) << text_of(findings);
  EXPECT_EQ(findings[0].level, Level::kWarning);
  EXPECT_HAS(findings[0].what, "n1, n2 have the same address 172.17.0.1 (docker0)");
  EXPECT_HAS(findings[0].next, "--mca btl_tcp_if_exclude lo,docker0");
  EXPECT_HAS(findings[0].next, "UCX_NET_DEVICES=eth0");
}

TEST(JudgeNetwork, NotOnOneNodeNorWhereItIsLeftOutAlready) {
  const auto one = with_docker(1);
  EXPECT_TRUE(judge_network(one, nodes_of(one)).empty());
  for (const auto& [name, value] : {std::pair("OMPI_MCA_btl_tcp_if_exclude", "lo,docker0"),
                                    {"OMPI_MCA_btl_tcp_if_include", "eth0"},
                                    {"UCX_NET_DEVICES", "mlx5_0:1,eth0"}}) {
    auto facts = with_docker(2);
    for (RankFacts& rank : facts) rank.environment[name] = value;
    EXPECT_EQ(text_of(judge_network(facts, nodes_of(facts))), "") << name;
  }
  auto facts = with_docker(2);
  for (RankFacts& rank : facts) rank.environment["OMPI_MCA_btl_tcp_if_include"] = "docker0";
  EXPECT_EQ(judge_network(facts, nodes_of(facts)).size(), 1u);
}

TEST(JudgeNetwork, NodesWithoutACommonSubnetAreNamed) {
  auto facts = made_up_facts(2, 1);
  facts[1].addresses = {{"eth0", "10.0.1.2", "10.0.1.0/24", 0}};
  const Findings findings = judge_network(facts, nodes_of(facts));
  ASSERT_EQ(findings.size(), 1u) << text_of(findings);
  EXPECT_HAS(findings[0].what, "no subnet is on all 2 nodes; n1 has 10.0.0.0/24");
}

TEST(JudgeTransports, AnotherChoiceAndAnUnusedInfiniBandDeviceAreNamed) {
  auto facts = made_up_facts(2, 1);
  facts[1].transports.components = {"pml ucx"};
  EXPECT_HAS(text_of(judge_transports(facts)),
             "MPI has chosen pml ob1 on rank 0 (n1), pml ucx on rank 1 (n2)");
  facts = made_up_facts(2, 1);
  for (RankFacts& rank : facts)
    rank.adapters = {{"mlx5_0", "DOWN", "", "InfiniBand", 0, ""},
                     {"mlx5_1", "ACTIVE", "400 Gb/sec", "InfiniBand", 0, ""}};
  EXPECT_HAS(text_of(judge_transports(facts)),
             "ranks 0-1 send MPI's messages by pml ob1, though mlx5_1 is active");
  EXPECT_HAS(text_of(judge_devices(facts, nodes_of(facts))), "mlx5_0 of n1 is DOWN");
  for (RankFacts& rank : facts) rank.transports.components = {"pml ucx"};
  EXPECT_EQ(text_of(judge_transports(facts)), "");
}

TEST(JudgeDevices, NodesWithOtherNumbersOfGpusAreNamed) {
  auto facts = made_up_facts(2, 1);
  facts[0].gpus.resize(8);
  facts[1].gpus.resize(7);
  EXPECT_HAS(text_of(judge_devices(facts, nodes_of(facts))), "n2 sees 7 GPUs, n1 sees 8");
}

TEST(JudgeCores, MoreThreadsThanTheRankMayUse) {
  auto facts = made_up_facts(1, 4);
  facts[1].cores.threads = facts[2].cores.threads = 16;
  const Findings findings = judge_cores(facts, nodes_of(facts), false);
  ASSERT_EQ(findings.size(), 1u) << text_of(findings);
  EXPECT_EQ(findings[0].what, "ranks 1-2 compute with 16 threads, but may use 2 hardware threads");
  EXPECT_HAS(findings[0].next, "OMP_NUM_THREADS=2");
  EXPECT_HAS(findings[0].next, "srun --cpus-per-task=16");
}

TEST(JudgeCores, RanksBoundToOneCoreWhileOthersAreIdle) {
  auto facts = made_up_facts(1, 4);  // 8 hardware threads
  for (RankFacts& rank : facts) {
    rank.cores.bound = {0};
    rank.cores.threads = 1;
  }
  const Findings findings = judge_cores(facts, nodes_of(facts), false);
  ASSERT_EQ(findings.size(), 1u) << text_of(findings);
  EXPECT_EQ(findings[0].level, Level::kWarning);
  EXPECT_EQ(
      findings[0].what,
      "ranks 0-3 (n1) are bound to the same hardware thread 0, 4 threads in all, while nobody "
      "may use hardware threads 1-7");
}

TEST(JudgeCores, OverlapsThatChainAreOneCrowd) {
  auto facts = made_up_facts(1, 4);
  for (int rank = 0; rank < 3; ++rank)
    facts[static_cast<size_t>(rank)].cores.bound = {rank, rank + 1};
  // 6 threads on hardware threads 0-3; rank 3 has 6 and 7 for itself, 4 and 5 are idle.
  EXPECT_HAS(text_of(judge_cores(facts, nodes_of(facts), false)),
             "ranks 0-2 (n1) are bound to the same hardware threads 0-3, 6 threads in all, while "
             "nobody may use hardware threads 4-5");
}

TEST(JudgeCores, AFullNodeIsNamedOnlyByTheWholeDoctor) {
  auto facts = made_up_facts(1, 4);
  for (RankFacts& rank : facts) rank.cores.bound = rank.cores.allowed = {0, 1};
  EXPECT_EQ(text_of(judge_cores(facts, nodes_of(facts), false)), "");
  EXPECT_HAS(text_of(judge_cores(facts, nodes_of(facts), true)),
             "ranks 0-3 (n1) compute with 8 threads on hardware threads 0-1");
}

TEST(JudgeLimits, EachLimitThatIsTooLow) {
  const auto judged = [](auto&& change) {
    auto facts = made_up_facts(1, 4);
    for (RankFacts& rank : facts) change(rank);
    return text_of(judge_limits(facts, nodes_of(facts), kSharedBeforeStart));
  };
  EXPECT_HAS(judged([](RankFacts& rank) { rank.memory.available = 1024 * kMiB; }),
             "ranks 0-3 (n1): 1.00 GiB of memory are free, 256 MiB a rank");
  EXPECT_HAS(judged([](RankFacts& rank) { rank.memory.shared_free = 63 * kMiB; }),
             "/dev/shm has 63 MiB free of 32.00 GiB, less than 16 MiB a rank");
  EXPECT_EQ(judged([](RankFacts& rank) { rank.memory.shared_free = 64 * kMiB; }), "");
  EXPECT_HAS(judged([](RankFacts& rank) { rank.limits.address_space = 1024 * kMiB; }),
             "only 1.00 GiB of addresses (ulimit -v)");
  EXPECT_HAS(judged([](RankFacts& rank) { rank.limits.files = 256; }),
             "only 256 open files (ulimit -n), fewer than 264");
  EXPECT_HAS(judged([](RankFacts& rank) { rank.limits.processes = 255; }),
             "only 255 processes and threads (ulimit -u) for 4 ranks");
  // 8 MiB of locked memory matter to InfiniBand alone.
  EXPECT_HAS(judged([](RankFacts& rank) { rank.adapters.resize(1); }),
             "only 8192 KiB of memory can be locked (ulimit -l)");
}

TEST(JudgeClocks, ASecondApartOnAnotherNode) {
  const auto facts = made_up_facts(3, 1);
  const std::string text = text_of(judge_clocks({0.0, 0.5, -90.0}, facts, nodes_of(facts)));
  EXPECT_HAS(text, "the clock of n3 is 90.0 s behind that of n1");
  EXPECT_EQ(text.find("n2"), std::string::npos) << text;
}

FolderFacts good_folder(int ranks) {
  FolderFacts folder;
  for (int rank = 0; rank < ranks; ++rank)
    folder.views.push_back({rank,
                            "/shared/run",
                            true,
                            rank % 2 == 0,
                            "nfs4 (server:/home)",
                            int64_t{1} << 40,
                            "",
                            {},
                            rank % 2 == 0 ? "held" : "not tried",
                            500e6,
                            900e6});
  folder.renames = 50;
  folder.reader = 2;
  return folder;
}

TEST(JudgeFolder, AGoodOneGivesNoFinding) {
  const auto facts = made_up_facts(2, 2);
  EXPECT_EQ(text_of(judge_folder(good_folder(4), facts, nodes_of(facts))), "");
}

TEST(JudgeFolder, RanksThatDoNotSeeItAreAnError) {
  const auto facts = made_up_facts(2, 2);
  FolderFacts folder = good_folder(4);
  for (const size_t rank : {2, 3}) {
    folder.views[rank].visible = false;
    folder.views[rank].path = "/home/other/run";
  }
  const Findings findings = judge_folder(folder, facts, nodes_of(facts));
  ASSERT_EQ(findings.size(), 1u) << text_of(findings);
  EXPECT_EQ(findings[0].level, Level::kError);
  EXPECT_EQ(findings[0].what,
            "ranks 2-3 do not see what rank 0 writes to /shared/run: rank 2 (n2) looked into "
            "/home/other/run");
}

TEST(JudgeFolder, WhatItLacksIsAWarning) {
  const auto facts = made_up_facts(2, 2);
  FolderFacts folder = good_folder(4);
  folder.views[0].lacks = folder.views[2].lacks = {"no sync"};
  folder.views[2].lock = "not held";
  folder.views[2].free = 100 * kMiB;
  folder.views[2].write_bytes_per_s = 10e6;
  folder.odd_reads = 3;
  const Findings findings = judge_folder(folder, facts, nodes_of(facts));
  ASSERT_EQ(findings.size(), 5u) << text_of(findings);
  for (const Finding& finding : findings) EXPECT_EQ(finding.level, Level::kWarning);
  EXPECT_EQ(findings[0].what, "no sync");
  EXPECT_HAS(findings[1].what, "a lock of rank 0 (n1) does not keep rank 2 (n2) out");
  EXPECT_HAS(findings[1].what, "on two nodes");
  EXPECT_HAS(findings[2].what, "neither the old nor the new one 3 times while it was replaced 50");
  EXPECT_HAS(findings[3].what, "only 100 MiB are free, as n2 sees it");
  EXPECT_HAS(findings[4].what, "n2 writes 10 MB/s");
}

TEST(JudgeFolder, OneThatCannotBeMadeOrWrittenIsAnError) {
  const auto facts = made_up_facts(1, 2);
  FolderFacts none;
  none.error = "cannot make the folder";
  EXPECT_HAS(text_of(judge_folder(none, facts, nodes_of(facts))),
             "error run folder: rank 0 (n1): cannot make the folder");
  FolderFacts folder = good_folder(2);
  folder.views[1].error = "Permission denied";
  EXPECT_HAS(text_of(judge_folder(folder, facts, nodes_of(facts))),
             "error run folder: rank 1 (n1): /shared/run: Permission denied");
}

TEST(JudgePairs, OutliersAreComparedWithTheirLike) {
  const auto facts = made_up_facts(2, 3);
  std::vector<PairSpeed> pairs;
  for (int a = 0; a < 6; ++a)
    for (int b = a + 1; b < 6; ++b)
      pairs.push_back(a / 3 == b / 3 ? PairSpeed{a, b, 2, 5e9} : PairSpeed{a, b, 20, 1e9});
  EXPECT_EQ(text_of(judge_pairs(pairs, facts, nodes_of(facts))), "");

  PairSpeed& link = pairs[2];  // 0 and 3, across nodes
  ASSERT_EQ(std::pair(link.from, link.to), std::pair(0, 3));
  link.bytes_per_s = 0.49e9;
  std::string text = text_of(judge_pairs(pairs, facts, nodes_of(facts)));
  EXPECT_HAS(text,
             "rank 0 (n1) to rank 3 (n2): 490 MB/s, 20 us; the median between nodes is 1.00 GB/s, "
             "20 us");
  link.bytes_per_s = 0.51e9;
  EXPECT_EQ(text_of(judge_pairs(pairs, facts, nodes_of(facts))), "");
  link.latency_us = 69;  // more than three times the median, but not 50 us more
  EXPECT_EQ(text_of(judge_pairs(pairs, facts, nodes_of(facts))), "");
  link.latency_us = 71;
  EXPECT_HAS(text_of(judge_pairs(pairs, facts, nodes_of(facts))), "510 MB/s, 71 us");
}

TEST(JudgePairs, TwoPairsHaveNoOutlierAndManyAreCounted) {
  const PairSpeed fast{0, 1, 2, 5e9}, slow{0, 2, 2, 1e9};
  EXPECT_FALSE(is_outlier(slow, {fast, slow}));
  EXPECT_TRUE(is_outlier(slow, {fast, fast, slow}));

  const auto facts = made_up_facts(1, 20);
  std::vector<PairSpeed> pairs;
  for (int other = 1; other < 20; ++other) pairs.push_back({0, other, 2, other <= 6 ? 1e9 : 5e9});
  const Findings findings = judge_pairs(pairs, facts, nodes_of(facts));
  ASSERT_EQ(findings.size(), 5u) << text_of(findings);
  EXPECT_HAS(findings[4].what, "2 more pairs in a node are as slow");
}

TEST(JudgePairs, ASlowNetworkIsNamed) {
  const auto facts = made_up_facts(2, 1);
  EXPECT_HAS(text_of(judge_pairs({{0, 1, 100, 117e6}}, facts, nodes_of(facts))),
             "between nodes 117 MB/s is the median of 1 pairs");
}

TEST(JudgeAxes, ASlowGroupAndTpAcrossNodes) {
  std::vector<AxisSpeed> axes;
  for (int group = 0; group < 4; ++group)
    axes.push_back({"dp_shard", {group, group + 4}, false, 20, group == 2 ? 0.4e9 : 1e9});
  EXPECT_HAS(text_of(judge_axes(axes, false)),
             "dp_shard group of ranks 2, 6: 400 MB/s; the median is 1.00 GB/s");
  axes = {{"tp", {0, 1}, false, 20, 1e8}};
  EXPECT_EQ(judge_axes(axes, false).at(0).level, Level::kError);
  EXPECT_HAS(text_of(judge_axes(axes, false)), "the tp group of ranks 0-1 straddles nodes");
  EXPECT_EQ(judge_axes(axes, true).at(0).level, Level::kWarning);
}

TEST(JudgeProducts, RanksBelowFourFifthsOfTheMedianAreNamed) {
  const auto facts = made_up_facts(2, 2);
  std::vector<ProductSpeed> products;
  for (int rank = 0; rank < 4; ++rank)
    for (const char* dtype : {"fp32", "bf16"}) products.push_back({rank, dtype, 100e9});
  EXPECT_EQ(text_of(judge_products(products, facts)), "");
  products[6].flops = 79e9;  // fp32 of rank 3
  products[5].flops = 81e9;
  const Findings findings = judge_products(products, facts);
  ASSERT_EQ(findings.size(), 1u) << text_of(findings);
  EXPECT_EQ(findings[0].what,
            "rank 3 (n2) multiplies fp32 matrices at 79.0 GFLOP/s, 0.79 of the median 100.0");
}

}  // namespace
}  // namespace tessera::doctor
