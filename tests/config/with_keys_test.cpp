#include "config/keys/with_keys.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/error.h"

namespace tessera {
namespace {

TEST(WithKeys, AddsTheKeysToTheErrorsOfItsKind) {
  try {
    with_keys<UserError>("memory.offload_dir", [] { fail_user("moments", "no space"); });
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "[moments] no space (memory.offload_dir)");
  }
}

TEST(WithKeys, LetsOtherErrorsAndResultsThrough) {
  try {
    with_keys<UserError>("memory.offload_dir", [] { fail("moments", "cannot map"); });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[moments] cannot map");
  }
  EXPECT_EQ(*with_keys<UserError>("key", [] { return std::make_unique<int>(3); }), 3);
}

}  // namespace
}  // namespace tessera
