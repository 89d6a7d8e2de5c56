// Texts that YAML takes and that say something else than they look like.

#include <gtest/gtest.h>

#include "config/save.h"
#include "config_text.h"

namespace tessera {
namespace {

using testing::expect_user_error;
using testing::kMinimal;
using testing::load_text;
using testing::minimal;

struct BadText {
  const char* label;
  std::string text;  // after the 15 lines of kMinimal
  std::vector<std::string> parts;
};

TEST(TextMistakes, AreFoundWhereTheyBegin) {
  const std::vector<BadText> cases = {
      {"a quote that is never closed",
       "eval:\n  every: \"0\nschedule:\n  warmup_steps: 5\n",
       {"c.yaml:17:10: \"0: the quote is not closed in its line"}},
      {"a quote that the next one closes",
       "checkpoint: {init_from: \"a/b}\noptimizer: {type: \"adamw\"}\n",
       {"c.yaml:16:25: \"a/b}: the quote is not closed"}},
      {"a single quote",
       "checkpoint:\n  init_from: 'a/b\neval: {every: 0}  # it's\n",
       {"c.yaml:17:14: 'a/b: the quote is not closed"}},
      {"an escaped quote", "checkpoint: {init_from: \"a\\\"}\n", {"c.yaml:16:25: \"a\\\"}"}},
      {"a quote inside a quoted text",
       "checkpoint: {init_from: 'it's'}\n",
       {"c.yaml:16:25: 'it': after the closing quote comes 's'}'", "written ''"}},
      {"quotes of a word processor",
       "checkpoint: {init_from: \xe2\x80\x9c"
       "a\xe2\x80\x9d}\n",
       {"c.yaml:16:25: U+201C, which looks like a quote"}},
      {"a plain text of two lines",
       "checkpoint:\n  init_from: a/b\n    c\n",
       {"c.yaml:17:14: a/b c: the text goes on in another line"}},
      {"a plain text of two lines in brackets",
       "checkpoint: {init_from: a\n  b}\n",
       {"c.yaml:16:25: a b: the text goes on in another line"}},
      {"a block text",
       "checkpoint:\n  init_from: |\n    a\n",
       {"c.yaml:17:14: |: a text of several lines"}},
      {"a folded text",
       "checkpoint:\n  init_from: >-\n    a\n",
       {"c.yaml:17:14: >: a text of several lines"}},
      {"a line end by escape",
       "checkpoint: {init_from: \"a\\nb\"}\n",
       {"c.yaml:16:25: \"a\\u000ab\": it holds U+000A, a control character"}},
      {"a tab in a text", "checkpoint: {init_from: a\tb}\n", {"U+0009, a control character"}},
      {"a no-break space after the colon",
       "optimizer:\n  lr:\xc2\xa0"
       "1e-3\n",
       {"c.yaml:17:6: U+00A0, a no-break space after 'lr:'; write a plain space"}},
      {"a no-break space in a path",
       "checkpoint: {init_from: a\xc2\xa0"
       "b}\n",
       {"c.yaml:16:26: U+00A0, a no-break space"}},
      {"a zero-width space in a number",
       "optimizer: {lr: 1e\xe2\x80\x8b-3}\n",
       {"c.yaml:16:19: U+200B, a zero-width space", "remove it"}},
      {"a zero-width space by escape",
       "checkpoint: {init_from: \"a\\u200b\"}\n",
       {"c.yaml:16:25: \"a\\u200b\": it holds U+200B"}},
      {"a byte-order mark inside",
       "\xef\xbb\xbf"
       "eval: {every: 0}\n",
       {"c.yaml:16:1: U+FEFF, a byte-order mark inside the text"}},
      {"text that turns round in a comment",
       "eval: {every: 0}  # \xe2\x80\xae\n",
       {"c.yaml:16:21: U+202E, a mark of the direction"}},
      {"a soft hyphen in a key",
       "opti\xc2\xadmizer: {lr: 1e-3}\n",
       {"c.yaml:16:5: U+00AD, a soft hyphen"}},
      {"a Cyrillic letter in a section",
       "\xd1\x81heckpoint: {every: 5}\n",
       {"c.yaml:16:1: \xd1\x81heckpoint: unknown key; character 1 is U+0441, which looks like the "
        "Latin c; did you mean checkpoint?"}},
      {"a Cyrillic letter in a key",
       "eval: {\xd0\xb5very: 5}\n",
       {"character 1 is U+0435, which looks like the Latin e; did you mean eval.every?"}},
      {"a Cyrillic letter in a word",
       "schedule: {type: \xd1\x81osine}\n",
       {"character 1 is U+0441, which looks like the Latin c; did you mean cosine?"}},
      {"a minus sign that is none",
       "optimizer: {lr: 1e\xe2\x88\x92"
       "3}\n",
       {"c.yaml:16:17: optimizer.lr: 1e\xe2\x88\x92"
        "3; must be a number above 0",
        "character 3 is U+2212, which looks like -"}},
      {"digits of full width",
       "eval: {every: \xef\xbc\x95}\n",
       {"character 1 is U+FF15, which looks like 5"}},
      {"columns are characters",
       "checkpoint: {init_from: \xc3\xa9\xc3\xa9, evry: 1}\n",
       {"c.yaml:16:29: checkpoint.evry"}},
  };
  for (const BadText& bad : cases)
    expect_user_error([&] { load_text(kMinimal + bad.text); }, bad.parts, bad.label);
}

TEST(TextMistakes, TheSameOnTheCommandLine) {
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"run.dir=\"a", {"--set run.dir: \"a: the quote is not closed"}},
      {"run.dir=a\nb", {"--set run.dir: a b: the text goes on in another line"}},
      {"run.dir=|\n a", {"--set run.dir: |: a text of several lines"}},
      {"training.steps=1\xe2\x80\x8b",
       {"--set training.steps: U+200B, a zero-width space after '1'"}},
      {"training.ste\xe2\x80\x8bps=1",
       {"--set training.ste\\u200bps: it holds U+200B, a zero-width space"}},
      {"training.st\xd0\xb5ps=1", {"--set training.st\xd0\xb5ps: ", "character 3 is U+0435"}},
  };
  for (const auto& [set, parts] : cases) expect_user_error([&] { minimal({set}); }, parts, set);
}

TEST(TextMistakes, WhatLooksAlikeAndIsRightIsTaken) {
  const Config c = load_text(std::string(kMinimal) +
                             "checkpoint: {init_from: it's, resume: \"a # b\"}  # it's \"open and "
                             "a no-break\xc2\xa0space\n"
                             "eval:\t{every: 0}\n"
                             "memory: {\"offload_dir\":'it''s [x]'}\n");
  EXPECT_EQ(c.checkpoint.init_from, "it's");
  EXPECT_EQ(c.checkpoint.resume, "a # b");
  EXPECT_EQ(c.memory.offload_dir, "it's [x]");
  const std::string path = "\xd0\xb4\xd0\xb0\xd0\xbd\xd0\xbd\xd1\x8b\xd0\xb5/\xe4\xb8\xad/\xc3\xa9";
  EXPECT_EQ(minimal({"run.dir=" + path}).run.dir, path);
  EXPECT_NE(to_yaml(minimal({"run.dir=" + path})).find(path), std::string::npos);
  // Over several lines, where it is not one text.
  EXPECT_EQ(load_text(std::string(kMinimal) + "optimizer: {betas: [0.5,\n  0.75],\n  eps: 1e-6}\n")
                .optimizer.beta2,
            0.75);
}

}  // namespace
}  // namespace tessera
