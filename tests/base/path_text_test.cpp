#include "base/files/path_text.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace tessera {
namespace {

class PathText : public ::testing::Test {
 protected:
  PathText() {
    setenv("HOME", "/home/user", 1);
    setenv("SCRATCH_1", "/scratch", 1);
    setenv("EMPTY", "", 1);
    setenv("BAD", "/a\nb", 1);
    unsetenv("UNSET");
  }
};

TEST_F(PathText, ExpandsHomeAndVariables) {
  const std::pair<const char*, const char*> cases[] = {
      {"a/b", "a/b"},
      {"~", "/home/user"},
      {"~/runs/a", "/home/user/runs/a"},
      {"$SCRATCH_1/x", "/scratch/x"},
      {"${SCRATCH_1}x$SCRATCH_1", "/scratchx/scratch"},
      {"a~", "a~"},  // only at the front
      {"a/~/b", "a/~/b"},
      {"./~", "./~"},
      {"a$$b", "a$b"},
      {"$$HOME", "$HOME"},
  };
  for (const auto& [text, path] : cases) {
    const ExpandedPath expanded = expand_path(text);
    EXPECT_EQ(expanded.error, "") << text;
    EXPECT_EQ(expanded.path, path) << text;
  }
}

TEST_F(PathText, WhatCannotBeExpandedIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"$UNSET/x", "the variable UNSET is not set"},
      {"${UNSET}", "the variable UNSET is not set"},
      {"$EMPTY/x", "the variable EMPTY is empty"},
      {"$BAD", "the variable BAD is no path: it holds U+000A"},
      {"a$", "'$' is no variable"},
      {"a$/b", "$$ is a dollar sign"},
      {"$1", "'$1' is no variable"},
      {"${HOME", "'${HOME' is no variable"},
      {"${HOME:-/x}", "'${HOME:-/x}' is no variable"},
      {"$(pwd)/x", "'$(pwd)/x' is no variable"},
      {"~other/x", "~other as another user's home is not looked up"},
  };
  for (const auto& [text, part] : cases)
    EXPECT_NE(expand_path(text).error.find(part), std::string::npos)
        << text << ": " << expand_path(text).error;
  unsetenv("HOME");
  EXPECT_NE(expand_path("~/x").error.find("the variable HOME is not set"), std::string::npos);
}

TEST_F(PathText, WhatIsWrittenReadsBack) {
  for (const char* path : {"a/b", "a$b", "$HOME", "$$", "a~"})
    EXPECT_EQ(expand_path(path_as_written(path)).path, path);
  EXPECT_EQ(expand_path(path_as_written("~/a")).path, "./~/a");  // the same folder
}

}  // namespace
}  // namespace tessera
