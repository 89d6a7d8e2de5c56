// Numbers, nodes, paths and plans: what the doctor computes without looking at a machine.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "doctor/facts/device_path.h"
#include "doctor/facts/numbers.h"
#include "doctor/measure/measure.h"
#include "doctor/measure/pair_plan.h"
#include "doctor/probes/probes.h"
#include "doctor/report/table.h"
#include "made_up_facts.h"

namespace tessera::doctor {
namespace {

TEST(Numbers, AreWrittenAndReadAsTheKernelDoes) {
  EXPECT_EQ(numbers_text({}), "");
  EXPECT_EQ(numbers_text({3}), "3");
  EXPECT_EQ(numbers_text({0, 1, 2, 5, 7, 8}), "0-2, 5, 7-8");
  EXPECT_EQ(ranks_text({4}), "rank 4");
  EXPECT_EQ(ranks_text({0, 1}), "ranks 0-1");
  EXPECT_EQ(parse_numbers("0-3,8,10-11"), (std::vector<int>{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(parse_numbers("5"), std::vector<int>{5});
  EXPECT_TRUE(parse_numbers("").empty());
  EXPECT_TRUE(parse_numbers("none").empty());
}

TEST(Numbers, Units) {
  EXPECT_EQ(rate_text(1.234e9), "1.23 GB/s");
  EXPECT_EQ(rate_text(112e6), "112 MB/s");
  EXPECT_EQ(rate_text(85e3), "85 kB/s");
  EXPECT_EQ(time_text(2.345), "2.35 s");
  EXPECT_EQ(time_text(1.25e-3), "1.2 ms");
  EXPECT_EQ(time_text(12e-6), "12 us");
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
}

TEST(Nodes, AreToldByHostAndKernel) {
  auto facts = made_up_facts(2, 2);
  facts[2].host = facts[3].host = "n1";  // two machines of one name
  const auto nodes = nodes_of(facts);
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[1].ranks, (std::vector<int>{2, 3}));
  EXPECT_EQ(node_of_ranks(nodes), (std::vector<int>{0, 0, 1, 1}));
  facts[2].kernel_run = facts[3].kernel_run = facts[0].kernel_run;
  EXPECT_EQ(nodes_of(facts).size(), 1u);
}

TEST(Nodes, FactsTravelAsJson) {
  const auto facts = made_up_facts(1, 1);
  const nlohmann::json json = facts[0];
  EXPECT_EQ(nlohmann::json(json.get<RankFacts>()), json);
}

TEST(Addresses, Subnets) {
  EXPECT_EQ(subnet_text("10.77.3.11", 24), "10.77.3.0/24");
  EXPECT_EQ(subnet_text("10.77.3.11", 12), "10.64.0.0/12");
  EXPECT_EQ(subnet_text("10.77.3.11", 32), "10.77.3.11/32");
  EXPECT_EQ(subnet_text("fd00:1:2:3:4::2", 64), "fd00:1:2:3::/64");
  EXPECT_EQ(subnet_text("no address", 8), "");
}

TEST(DevicePaths, HowNearTwoDevicesAre) {
  const std::string bridge = "/sys/devices/pci0000:17/";
  const std::string gpu = bridge + "0000:17:01.0/0000:18:00.0/0000:19:00.0/0000:1a:00.0";
  EXPECT_EQ(
      distance_text(gpu, 0, bridge + "0000:17:01.0/0000:18:00.0/0000:19:01.0/0000:1b:00.0", 0),
      "one PCIe switch");
  EXPECT_EQ(distance_text(gpu, 0, bridge + "0000:17:03.0/0000:20:00.0", 0), "one host bridge");
  EXPECT_EQ(distance_text(gpu, 0, "/sys/devices/pci0000:3a/0000:3a:01.0", 0), "one NUMA node");
  EXPECT_EQ(distance_text(gpu, 0, "/sys/devices/pci0000:9a/0000:9a:01.0", 1), "another NUMA node");
  EXPECT_EQ(distance_text(gpu, -1, "/sys/devices/pci0000:9a/0000:9a:01.0", -1),
            "another NUMA node");
  EXPECT_EQ(distance_text(gpu, 0, "", 0), "unknown");
}

TEST(FileSystems, TheDeepestMountThatHoldsThePath) {
  const std::string mounts =
      "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
      "30 22 0:40 / /home rw,noatime shared:1 - nfs4 server:/home rw\n"
      "31 30 0:41 / /home/fast rw - lustre 10.0.0.1@tcp:/fast rw\n";
  EXPECT_EQ(file_system_of(mounts, "/home/alice/run"), "nfs4 (server:/home)");
  EXPECT_EQ(file_system_of(mounts, "/home/fast"), "lustre (10.0.0.1@tcp:/fast)");
  EXPECT_EQ(file_system_of(mounts, "/homestead"), "ext4 (/dev/sda1)");
  EXPECT_EQ(file_system_of("", "/home"), "");
}

TEST(Axes, AreThoseOfTheMesh) {
  // 2 x 3 x 2; rank 9 is replicate 1, shard 1, tp 1.
  const auto axes = axes_of({.dp_replicate = 2, .dp_shard = 3, .tp = 2}, 9);
  ASSERT_EQ(axes.size(), 3u);
  EXPECT_EQ(axes[0].axis, "tp");
  EXPECT_EQ(axes[0].color, 4);
  EXPECT_EQ(axes[0].key, 1);
  EXPECT_EQ(axes[1].axis, "dp_shard");
  EXPECT_EQ(axes[1].key, 1);
  EXPECT_EQ(axes[2].axis, "dp_replicate");
  EXPECT_EQ(axes[2].key, 1);
  EXPECT_TRUE(axes_of({}, 0).empty());
}

// Every round is of disjoint pairs, and no pair comes twice. Returns the pairs.
std::set<std::pair<int, int>> check_rounds(const std::vector<Round>& rounds) {
  std::set<std::pair<int, int>> pairs;
  for (const Round& round : rounds) {
    std::set<int> busy;
    for (const auto& [a, b] : round) {
      EXPECT_TRUE(busy.insert(a).second);
      EXPECT_TRUE(busy.insert(b).second);
      EXPECT_TRUE(pairs.insert(std::minmax(a, b)).second) << a << " " << b;
    }
  }
  return pairs;
}

TEST(PairPlan, OnOneNodeEveryPairMeetsOnce) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    std::vector<int> node;
    for (int rank = 0; rank < ranks; ++rank) node.push_back(rank);
    const PairPlan plan = plan_pairs({node}, 100);
    EXPECT_EQ(check_rounds(plan.inside).size(), static_cast<size_t>(ranks * (ranks - 1) / 2));
    EXPECT_LE(plan.inside.size(), static_cast<size_t>(ranks));
    EXPECT_TRUE(plan.across.empty());
    EXPECT_TRUE(plan.all_across);
  }
}

TEST(PairPlan, AcrossNodesALinkIsLeftToOnePair) {
  const std::vector<std::vector<int>> nodes = {{0, 1}, {2, 3}, {4, 5, 6}};
  const PairPlan plan = plan_pairs(nodes, 100);
  EXPECT_EQ(check_rounds(plan.inside).size(), 1u + 1u + 3u);
  EXPECT_EQ(check_rounds(plan.across).size(), 2u * 2u + 2u * 3u + 2u * 3u);
  EXPECT_TRUE(plan.all_across);
  std::map<int, int> node_of;
  for (size_t node = 0; node < nodes.size(); ++node)
    for (const int rank : nodes[node]) node_of[rank] = static_cast<int>(node);
  for (const Round& round : plan.across) {
    std::set<int> busy;
    for (const auto& [a, b] : round) {
      EXPECT_TRUE(busy.insert(node_of[a]).second);
      EXPECT_TRUE(busy.insert(node_of[b]).second);
    }
  }
}

TEST(PairPlan, OfManyRanksTheFirstOfEachNodeMeet) {
  std::vector<std::vector<int>> nodes;
  for (int node = 0; node < 16; ++node) {
    nodes.emplace_back();
    for (int local = 0; local < 8; ++local) nodes.back().push_back(node * 8 + local);
  }
  PairPlan plan = plan_pairs(nodes, 200);
  EXPECT_EQ(check_rounds(plan.across).size(), 16u * 15u / 2);
  EXPECT_EQ(plan.across.size(), 15u);
  EXPECT_FALSE(plan.all_across);
  EXPECT_EQ(plan.across[0][0].first % 8, 0);
  plan = plan_pairs(nodes, 5);
  EXPECT_EQ(plan.across.size(), 5u);
}

TEST(Tables, CellsOfAColumnAreAlikeWide) {
  Table table{"title", {{"a", "bb", "c"}, {"aaa", "b", "c"}, {"a remark that is longer"}}};
  EXPECT_EQ(text_of(table), "title\n  a    bb  c\n  aaa  b   c\n  a remark that is longer\n");
  table.shorten(1);
  EXPECT_EQ(text_of(table), "title\n  a  bb  c\n  and 2 more (--json lists all)\n");
}

}  // namespace
}  // namespace tessera::doctor
