#include "base/process/omp_num_threads.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "support/error_of.h"

namespace tessera {
namespace {

int threads_of(const char* value) {
  setenv("OMP_NUM_THREADS", value, 1);
  return omp_num_threads();
}

TEST(OmpNumThreads, TakesANumberOrAListOfThem) {
  unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(omp_num_threads(), 1);
  EXPECT_EQ(threads_of(""), 1);
  EXPECT_EQ(threads_of("1"), 1);
  EXPECT_EQ(threads_of(" 8 "), 8);
  EXPECT_EQ(threads_of("1024"), 1024);
  EXPECT_EQ(threads_of("4,2"), 4);
  EXPECT_EQ(threads_of("4, 2 ,1"), 4);
}

TEST(OmpNumThreads, RefusesAnythingElse) {
  for (const std::string value :
       {"8x", "abc", "0", "-1", "+4", "1025", "99999", "4294967297", "99999999999999999999", "2.5",
        "0x8", "4,", ",4", "4,x", "4 2", "4;2"})
    EXPECT_EQ(error_of([&] { threads_of(value.c_str()); }),
              "[threads] OMP_NUM_THREADS is '" + value +
                  "'; it must be a number of threads from 1 to 1024; set it so, or unset it");
}

}  // namespace
}  // namespace tessera
