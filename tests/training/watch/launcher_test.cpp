#include "training/watch/launcher.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

namespace tessera {
namespace {

using Names = std::vector<std::string>;

TEST(HostList, IsExpanded) {
  EXPECT_EQ(expand_host_list("n[08-11]"), (Names{"n08", "n09", "n10", "n11"}));
  EXPECT_EQ(expand_host_list("n[8-11]"), (Names{"n8", "n9", "n10", "n11"}));
  EXPECT_EQ(expand_host_list("n[099-101]"), (Names{"n099", "n100", "n101"}));
  EXPECT_EQ(expand_host_list("linux[1,2]"), (Names{"linux1", "linux2"}));
  EXPECT_EQ(expand_host_list("n[1,3-5,9]"), (Names{"n1", "n3", "n4", "n5", "n9"}));
  EXPECT_EQ(expand_host_list("host-[001-002],host-010"),
            (Names{"host-001", "host-002", "host-010"}));
  EXPECT_EQ(expand_host_list("c427-032,c429-002"), (Names{"c427-032", "c429-002"}));
  EXPECT_EQ(expand_host_list("r[1-2]n[3-4]x"), (Names{"r1n3x", "r1n4x", "r2n3x", "r2n4x"}));
}

TEST(HostList, TextThatIsNoneGivesNothing) {
  for (const char* text : {"", "n[1-", "n[b]", "n[5-2]", "n[]", "a,,b", "n[0-99999999999]"})
    EXPECT_TRUE(expand_host_list(text).empty()) << text;
}

TEST(TaskCounts, AreExpanded) {
  EXPECT_EQ(expand_task_counts("4(x2),3"), (std::vector<int>{4, 4, 3}));
  EXPECT_EQ(expand_task_counts("1"), (std::vector<int>{1}));
  for (const char* text : {"", "4(x", "x", "4(x99999999999)", "-1"})
    EXPECT_TRUE(expand_task_counts(text).empty()) << text;
}

class LaunchVariables : public testing::Test {
 protected:
  LaunchVariables() {
    for (const char* name : kNames) {
      if (const char* value = std::getenv(name)) before_[name] = value;
      unsetenv(name);
    }
  }
  ~LaunchVariables() override {
    for (const char* name : kNames) unsetenv(name);
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
  }
  static void set(const char* name, const char* value) { setenv(name, value, 1); }

 private:
  static constexpr const char* kNames[] = {"PMIX_NAMESPACE",      "OMPI_MCA_ess_base_jobid",
                                           "SLURM_JOB_ID",        "SLURM_STEP_ID",
                                           "SLURM_RESTART_COUNT", "SLURM_DISTRIBUTION",
                                           "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE"};
  std::map<std::string, std::string> before_;
};

TEST_F(LaunchVariables, NameAStart) {
  EXPECT_EQ(launch_id(), "");
  set("SLURM_JOB_ID", "12");
  EXPECT_EQ(launch_id(), "");  // of a batch script
  set("SLURM_STEP_ID", "0");
  EXPECT_EQ(launch_id(), "12.0.0");
  set("PMIX_NAMESPACE", "slurm.pmix.12.0");
  EXPECT_EQ(launch_id(), "slurm.pmix.12.0.0");
  set("SLURM_RESTART_COUNT", "2");  // the job was requeued; its steps count anew
  EXPECT_EQ(launch_id(), "slurm.pmix.12.0.2");
  // mpirun inside the job: its remote ranks do not see Slurm's variables.
  set("PMIX_NAMESPACE", "prterun-n1/7@1");
  EXPECT_EQ(launch_id(), "prterun-n1-7-1");
}

TEST_F(LaunchVariables, NameTheHostsOfRanks) {
  set("SLURM_STEP_NODELIST", "n[1-2]");
  set("SLURM_STEP_TASKS_PER_NODE", "2,1");
  EXPECT_EQ(hosts_of_ranks(3), (Names{"n1", "n1", "n2"}));
  EXPECT_TRUE(hosts_of_ranks(4).empty());
  set("SLURM_DISTRIBUTION", "cyclic");
  EXPECT_TRUE(hosts_of_ranks(3).empty());
}

}  // namespace
}  // namespace tessera
