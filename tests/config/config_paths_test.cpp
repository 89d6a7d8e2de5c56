// `~` and variables in every key that is a path.

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/fields/field.h"
#include "config/keys/fields.h"
#include "config/rules/resume.h"
#include "config/save.h"
#include "config_text.h"

namespace tessera {
namespace {

using testing::expect_user_error;
using testing::kMinimal;
using testing::load_text;
using testing::minimal;
using testing::TempDir;

class Paths : public ::testing::Test {
 protected:
  Paths() {
    setenv("HOME", "/home/user", 1);
    setenv("TESSERA_TEST_SCRATCH", "/scratch/$x", 1);  // not expanded again
    unsetenv("TESSERA_TEST_UNSET");
  }
};

// Every key that the declarations say is a path, in the file and by --set.
TEST_F(Paths, EveryPathKeyIsExpanded) {
  Config any = minimal();
  int seen = 0;
  for (const Section& section : describe(any)) {
    for (const Field& field : section.fields) {
      const bool list = std::holds_alternative<PathListValue>(field.value);
      if (!list && !std::holds_alternative<PathValue>(field.value)) continue;
      const std::string key = section.path(field);
      SCOPED_TRACE(key);
      ++seen;
      const auto value = [&](const std::string& path) { return list ? "[" + path + "]" : path; };
      const std::string pointer = "/" + section.name + "/" + field.name;
      const auto read = [&](const std::string& path) {
        const nlohmann::json json = to_json(minimal({key + "=" + value(path)}));
        const nlohmann::json& got = json[nlohmann::json::json_pointer(pointer)];
        return list ? got[0].get<std::string>() : got.get<std::string>();
      };
      EXPECT_EQ(read("~/a"), "/home/user/a");
      EXPECT_EQ(read("\"${TESSERA_TEST_SCRATCH}/a\""), "/scratch/$x/a");
      EXPECT_EQ(read("a$$b"), "a$b");
      expect_user_error([&] { read("$TESSERA_TEST_UNSET/a"); },
                        {"--set " + key, "the variable TESSERA_TEST_UNSET is not set"}, "unset");
      expect_user_error([&] { read("~other/a"); }, {"another user's home"}, "other");
    }
  }
  EXPECT_EQ(seen, 9);  // run.dir, memory.offload_dir, four of data, three of checkpoint
}

// A key whose text names a file, and that is not declared as one, would keep its `~`.
TEST_F(Paths, NoTextIsDeclaredAsMereText) {
  Config any = minimal();
  for (const Section& section : describe(any))
    for (const Field& field : section.fields)
      EXPECT_FALSE(std::holds_alternative<TextValue>(field.value)) << section.path(field);
}

TEST_F(Paths, WordsStayWords) {
  EXPECT_EQ(minimal({"checkpoint.resume=auto"}).checkpoint.resume, "auto");
  EXPECT_EQ(minimal({"checkpoint.init_from=none"}).checkpoint.init_from, "");
  // Patterns of names are no paths.
  EXPECT_EQ(minimal({"precision.keep_fp32=[\"$x~\"]"}).precision.keep_fp32,
            std::vector<std::string>{"$x~"});
}

TEST_F(Paths, TheFileOfTheModelToo) {
  const TempDir dir;
  dir.write("config.json", R"({"model_type": "llama", "hidden_size": 8, "intermediate_size": 8,
      "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 8, "rms_norm_eps": 1e-5})");
  setenv("TESSERA_TEST_MODEL", dir.path().c_str(), 1);
  const std::string rest =
      "run: {dir: a}\ndata: {train: [d], seq_len: 8}\ntraining: {steps: 1, global_batch_size: 1}\n";
  const Config c = load_text(rest + "model: {config: $TESSERA_TEST_MODEL/config.json}\n");
  EXPECT_EQ(c.model->input().vocab_size, 8);
}

// What a resumed run compares, and what a later look at the run folder sees, is where it was.
TEST_F(Paths, WhatIsSavedIsExpandedAndReadsBackWhereverItIsRead) {
  const Config c = minimal({"run.dir=~/a", "data.train=[$TESSERA_TEST_SCRATCH/b]"});
  const std::string yaml = to_yaml(c);
  EXPECT_NE(yaml.find("dir: /home/user/a\n"), std::string::npos) << yaml;
  setenv("HOME", "/elsewhere", 1);
  const Config again = load_text(yaml);
  EXPECT_EQ(to_json(again), to_json(c));
  EXPECT_TRUE(compare_for_resume(to_json(c), again).other.empty());
}

}  // namespace
}  // namespace tessera
