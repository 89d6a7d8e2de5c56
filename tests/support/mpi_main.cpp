// The main of tests that run under mpirun: brings MPI up once, runs every test on every rank, and
// agrees on the exit code, so that a failure on any rank fails the program. Rank 0 prints
// everything, the others their failures.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>
#include <exception>
#include <string>

#include "parallel/comm/mpi/mpi_communicator.h"
#include "support/mpi_test.h"

namespace tessera::testing {
namespace {

MpiRuntime* current_runtime = nullptr;

// Reports the failures of ranks other than 0, whose ordinary output is not shown.
class RankReport : public ::testing::EmptyTestEventListener {
 public:
  explicit RankReport(int rank) : rank_(rank) {}

  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    const std::string name =
        test == nullptr ? "set-up" : std::string(test->test_suite_name()) + "." + test->name();
    std::fprintf(stderr, "[rank %d] %s: %s:%d\n%s\n", rank_, name.c_str(),
                 result.file_name() == nullptr ? "?" : result.file_name(), result.line_number(),
                 result.message());
  }

 private:
  int rank_;
};

int run(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  MpiRuntime runtime(&argc, &argv);
  current_runtime = &runtime;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new RankReport(rank));
  }
  int failed = RUN_ALL_TESTS();
  if (::testing::UnitTest::GetInstance()->test_to_run_count() == 0) {
    std::fprintf(stderr, "[rank %d] no test ran\n", rank);
    failed = 1;
  }
  int any = 0;
  MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return any;
}

}  // namespace

MpiRuntime& mpi_runtime() {
  return *current_runtime;
}

}  // namespace tessera::testing

int main(int argc, char** argv) {
  try {
    return tessera::testing::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
