// What the reader takes and refuses, key by key: the table of mistakes.

#include <gtest/gtest.h>

#include "base/text/nearest.h"
#include "config/save.h"
#include "config_text.h"

namespace tessera {
namespace {

using testing::expect_user_error;
using testing::kContract;
using testing::kMinimal;
using testing::load_text;
using testing::minimal;

struct BadText {
  const char* label;
  std::string text;
  std::vector<std::string> parts;
};

TEST(Reader, RefusesTexts) {
  const std::string base = kMinimal;  // 15 lines; what is added starts at line 16
  const std::vector<BadText> cases = {
      {"unknown key",
       base + "optimizer: {lerning_rate: 1e-3}\n",
       {"c.yaml:16:13: optimizer.lerning_rate: unknown key", "did you mean optimizer.lr?",
        "keys of optimizer: type, lr, betas, eps, momentum, nesterov, weight_decay, moments, "
        "groups"}},
      {"unknown section",
       base + "optimiser: {lr: 1e-3}\n",
       {"c.yaml:16:1: optimiser: unknown key", "did you mean optimizer?"}},
      {"key of another section",
       base + "schedule: {weight_decay: 0.1}\n",
       {"c.yaml:16:12: schedule.weight_decay", "did you mean optimizer.weight_decay?"}},
      {"nothing near",
       base + "zzzzzzzzzzzz: 1\n",
       {"zzzzzzzzzzzz: unknown key; sections: run, device, model, parallel"}},
      {"repeated key",
       base + "optimizer:\n  lr: 1e-3\n  eps: 1e-8\n  lr: 2e-3\n",
       {"c.yaml:19:3: optimizer.lr: written twice", "c.yaml:17:3"}},
      {"repeated key in flow",
       base + "optimizer: {lr: 1e-3, lr: 2e-3}\n",
       {"c.yaml:16:23: optimizer.lr: written twice"}},
      {"repeated section", base + "run: {dir: b}\n", {"c.yaml:16:1: run: written twice", ":1:1"}},
      {"two documents", base + "---\nrun: {dir: b}\n", {"c.yaml:1", "a second document"}},
      {"second document empty", base + "---\n", {"a second document"}},
      {"merge key",
       base + "optimizer: {<<: {lr: 1}}\n",
       {"c.yaml:16:13: optimizer.<<: merge keys are not read"}},
      {"anchor", base + "optimizer: &o {lr: 1e-3}\n", {"c.yaml:16:", "an anchor"}},
      {"anchor on scalar", base + "optimizer: {lr: &o 1e-3}\n", {"c.yaml:16:", "an anchor"}},
      {"alias", base + "optimizer: {lr: &a 1e-3, eps: *a}\n", {"c.yaml:16:"}},
      {"tag", base + "optimizer: {lr: !!float 1e-3}\n", {"c.yaml:16:", "tag", "float"}},
      {"tag on map", base + "optimizer: !o {lr: 1e-3}\n", {"c.yaml:16:", "tag !o"}},
      {"null key", base + "optimizer: {~: 1}\n", {"a key is null"}},
      {"list as key", base + "? [a, b]\n: 1\n", {"a key is a list or a map"}},
      {"unknown key in a list",
       base + "optimizer:\n  groups:\n    - params: [a]\n    - params: [b]\n      frozn: true\n",
       {"c.yaml:20:7: optimizer.groups[1].frozn: unknown key; did you mean frozen?"}},
      {"required key in a list",
       base + "optimizer:\n  groups:\n    - frozen: true\n",
       {"c.yaml:18:7: optimizer.groups[0].params missing"}},
      {"empty section", base + "optimizer:\n", {"optimizer: null; must be a map"}},
      {"scalar section",
       base + "optimizer: adamw\n",
       {"c.yaml:16:12: optimizer: adamw; must be a map of keys"}},
      {"no space after colon",
       base + "optimizer:\n  lr:1e-3\n",
       {"c.yaml:17:3: optimizer: lr:1e-3", "a space is missing after the colon"}},
      {"section as list",
       base + "optimizer:\n  - lr: 1e-3\n",
       {"optimizer: a list; must be a map"}},
      {"empty file", "", {"c.yaml:1:1: empty configuration"}},
      {"comment only", "# x\n", {"empty configuration"}},
      {"blank lines", "\n\n", {"empty configuration"}},
      {"explicit null", "---\n~\n", {"empty configuration"}},
      {"not a map", "- a\n", {"c.yaml:1:1: a list; a configuration is a map"}},
      {"tab", "a:\n\tb: 1\n", {"c.yaml:2:", "not valid YAML", "indented with a tab"}},
      {"unclosed", base + "optimizer: {lr: 1e-3\n", {"c.yaml:1", "not valid YAML"}},
      {"control character",
       base + "eval: {every: 0}\n\x04schedule: {warmup_steps: 5}\n",
       {"c.yaml:17:1: U+0004, a control character; remove it"}},
      {"not UTF-8", "run: {dir: \xff}\n", {"c.yaml:1:12: byte 0xff is not UTF-8"}},
      {"UTF-16", "\xff\xfer\n", {"UTF-16"}},
      {"deep nesting", "run: " + std::string(5000, '['), {"not valid YAML"}},
      {"required keys",
       "run: {dir: a}\nmodel: {type: llama, hidden_size: 8}\n",
       {"c.yaml:2:1: model.intermediate_size, model.num_hidden_layers, model.num_attention_heads, "
        "model.vocab_size missing"}},
      {"required section", "run: {dir: a}\n", {"c.yaml:1:1: model.type, model.hidden_size"}},
      {"required key of run",
       "run: {seed: 1}\n",
       {"c.yaml:1:1: run.dir missing; it has no default"}},
  };
  for (const BadText& bad : cases) {
    expect_user_error([&] { load_text(bad.text); }, bad.parts, bad.label);
    expect_user_error([&] { load_text(bad.text); }, {"[config] "}, bad.label);
  }
}

struct BadValue {
  const char* set;
  std::vector<std::string> parts;
};

TEST(Reader, RefusesValues) {
  const std::vector<BadValue> cases = {
      // integers
      {"training.steps=0010", {"0010", "integer from 1", "write 10"}},
      {"training.steps=1e3", {"1e3", "write the integer 1000"}},
      {"training.steps=100.0", {"100.0", "write the integer 100"}},
      {"training.steps=100.5", {"100.5", "not a decimal integer"}},
      {"training.steps=0x10", {"0x10", "not a decimal integer"}},
      {"training.steps=0o17", {"0o17", "not a decimal integer"}},
      {"training.steps=1_000", {"1_000", "not a decimal integer"}},
      {"training.steps=1,000", {"1,000", "not a decimal integer"}},
      {"training.steps=\"100\"", {"\"100\"", "remove the quotes"}},
      {"training.steps='100'", {"remove the quotes"}},
      {"training.steps=0", {"training.steps: 0; must be an integer from 1"}},
      {"training.steps=-1", {"training.steps: -1"}},
      {"training.steps=99999999999999999999", {"99999999999999999999", "out of range"}},
      {"training.steps=~", {"training.steps: null", "leave the key out"}},
      {"training.steps=", {"training.steps: null"}},
      {"training.steps=null", {"training.steps: null"}},
      {"training.steps=true", {"training.steps: true", "not a decimal integer"}},
      {"training.steps=[1]", {"training.steps: a list"}},
      {"training.steps={a: 1}", {"training.steps: a map"}},
      {"training.steps=10 20", {"10 20", "not a decimal integer"}},
      {"training.steps=.inf", {".inf", "not a decimal integer"}},
      {"training.global_batch_size=-1", {"-1", "from 1 to 2147483647"}},
      {"training.stop_after=0", {"none or an integer from 1"}},
      {"run.seed=9223372036854775808",
       {"run.seed", "from 0 to 9223372036854775807", "out of range"}},
      {"run.seed=-1", {"run.seed: -1", "from 0 to 9223372036854775807"}},
      {"model.vocab_size=4294967296", {"model.vocab_size", "from 1 to 2147483647"}},
      {"model.num_attention_heads=0", {"model.num_attention_heads: 0", "from 1 to"}},
      {"parallel.tp=0", {"parallel.tp: 0", "from 1"}},
      {"parallel.dp_shard=0", {"parallel.dp_shard: 0", "auto or an integer from 1"}},
      {"parallel.dp_shard=Auto", {"parallel.dp_shard: Auto", "auto or an integer"}},
      {"parallel.zero=4", {"parallel.zero: 4", "from 0 to 3"}},
      {"parallel.reshard_after_forward=0",
       {"parallel.reshard_after_forward: 0", "true or false or an integer of at least 1"}},
      {"parallel.reshard_after_forward=yes", {"parallel.reshard_after_forward: yes"}},
      {"parallel.reshard_after_forward=-1", {"parallel.reshard_after_forward: -1"}},
      {"checkpoint.keep=-1", {"checkpoint.keep: -1", "from 0"}},
      // real numbers
      {"optimizer.lr=1e-4f", {"1e-4f", "not a decimal number"}},
      {"optimizer.lr='1,5e-4'", {"\"1,5e-4\"", "remove the quotes"}},
      {"optimizer.lr=1,5e-4", {"1,5e-4", "not a decimal number"}},
      {"optimizer.lr=0.001.0.005", {"0.001.0.005", "not a decimal number"}},
      {"optimizer.lr=0x1p-4", {"0x1p-4", "not a decimal number"}},
      {"optimizer.lr=010", {"010", "write 10"}},
      {"optimizer.lr=.inf", {".inf", "not a decimal number"}},
      {"optimizer.lr=inf", {"inf", "not a decimal number"}},
      {"optimizer.lr=.nan", {".nan", "not a decimal number"}},
      {"optimizer.lr=nan", {"nan", "not a decimal number"}},
      {"optimizer.lr=1e999", {"1e999", "too large or too small"}},
      {"optimizer.lr=1e", {"not a decimal number"}},
      {"optimizer.lr=.", {"not a decimal number"}},
      {"optimizer.lr=0", {"optimizer.lr: 0; must be a number above 0"}},
      {"optimizer.lr=-1e-3", {"optimizer.lr: -1e-3"}},
      {"optimizer.betas=[0.9, 1.0]", {"optimizer.betas: 1.0", "at least 0 and below 1"}},
      {"optimizer.betas=[-0.1, 0.9]", {"optimizer.betas: -0.1"}},
      {"optimizer.betas=[0.9]", {"a list of two", "this one has 1"}},
      {"optimizer.betas=0.9", {"a list of two"}},
      {"optimizer.betas=[0.9, '0.95']", {"remove the quotes"}},
      {"optimizer.betas=[0.9, ]", {"this one has 1"}},
      {"optimizer.weight_decay=-0.1", {"of at least 0"}},
      {"schedule.min_lr_ratio=1.5", {"of at least 0 and at most 1"}},
      {"training.clip_grad_norm=-1", {"of at least 0"}},
      // booleans
      {"training.log_samples=yEs", {"training.log_samples: yEs; must be true or false"}},
      {"training.log_samples=1", {"must be true or false"}},
      {"training.log_samples=yes", {"must be true or false"}},
      {"training.log_samples=off", {"must be true or false"}},
      {"training.log_samples=True", {"must be true or false"}},
      {"training.log_samples=\"false\"", {"\"false\"", "remove the quotes"}},
      // words
      {"schedule.type=cosin", {"schedule.type: cosin", "did you mean cosine?"}},
      {"schedule.type=step", {"constant or linear or cosine"}},
      {"precision.params=fp8", {"fp32 or bf16 or fp16 or fp64"}},
      {"device=gpu", {"device: gpu; must be cpu or cuda"}},
      {"model.type=bert", {"model.type: bert; must be llama or mistral"}},
      {"optimizer.type=adagrad", {"must be adamw or adam or sgd"}},
      {"optimizer.groups={params: [a]}",
       {"optimizer.groups: a map; must be a list of maps with the keys params, lr_scale, "
        "weight_decay, frozen; write [{...}]"}},
      {"debug.inject=5",
       {"debug.inject: 5; must be none or a map with the keys rank, step, at, do"}},
      {"debug.inject={rank: 1, at: data}", {"debug.inject.do missing; it has no default"}},
      {"debug.inject={rank: 1, at: data, do: explode}",
       {"debug.inject.do: explode; must be throw or exit or kill or stop or skip or resize"}},
      {"debug.inject={rank: 1, at: data, do: kill, when: 3}",
       {"debug.inject.when: unknown key", "keys of debug.inject: rank, step, at, do"}},
      {"optimizer.groups=[a]", {"optimizer.groups[0]: a; must be a map with the keys params"}},
      {"optimizer.groups=[{params: [a]}, {lr_scale: 2}]",
       {"optimizer.groups[1].params missing; it has no default"}},
      {"optimizer.groups=[{params: a}]",
       {"optimizer.groups[0].params: a; must be a list of texts; write [a]"}},
      {"optimizer.groups=[{params: [a], lr_mul: 2}]",
       {"optimizer.groups[0].lr_mul: unknown key; did you mean lr_scale? keys of "
        "optimizer.groups[0]: params, lr_scale, weight_decay, frozen"}},
      {"optimizer.groups=[{params: [a], lr_scale: 0}]",
       {"optimizer.groups[0].lr_scale: 0; must be a number above 0"}},
      {"optimizer.groups=[{params: [a], weight_decay: none}]",
       {"optimizer.groups[0].weight_decay: none; must be default or a number of at least 0"}},
      {"optimizer.groups=[{params: [a], frozen: yes}]", {"frozen: yes; must be true or false"}},
      {"precision.loss_scale=dynamc", {"auto or dynamic or a number", "did you mean dynamic?"}},
      {"precision.loss_scale=0.5", {"precision.loss_scale: 0.5; must be", "of at least 1"}},
      {"precision.loss_scale=\"auto\"", {"remove the quotes"}},
      // texts
      {"run.dir=''", {"run.dir: \"\"; must be a folder"}},
      {"run.dir=~", {"run.dir: null"}},
      {"run.dir=[a]", {"run.dir: a list"}},
      {"data.train=data/a", {"data.train: data/a; must be a list", "write [data/a]"}},
      {"data.train=[data/a, ~]", {"data.train: null"}},
      {"data.train=[[a]]", {"data.train: a list"}},
      {"data.train=['']", {"data.train: \"\""}},
      // the overrides themselves
      {"training.stesp=5", {"training.stesp: unknown key", "did you mean training.steps?"}},
      {"steps=5", {"steps: unknown key", "did you mean training.steps?"}},
      {"training.steps.x=5", {"training.steps is not a section"}},
      {"training=5", {"training: 5; must be a map"}},
      {"training.steps=[", {"not valid YAML"}},
      {"training.steps=1\n---\n2", {"a second document"}},
  };
  for (const BadValue& bad : cases) {
    expect_user_error([&] { minimal({bad.set}); }, bad.parts, bad.set);
    const std::string key = std::string(bad.set).substr(0, std::string(bad.set).find('='));
    expect_user_error([&] { minimal({bad.set}); }, {"[config] --set " + key + ": "}, bad.set);
  }
  expect_user_error([] { minimal({"training.steps"}); }, {"must be KEY=VALUE"}, "no value");
  expect_user_error([] { minimal({"=5"}); }, {"must be KEY=VALUE"}, "no key");
}

TEST(Reader, TakesNumbersAsWritten) {
  for (const char* text : {"1e-4", "1E-4", "1.0e-4", ".0001", "+1e-4", "0.0001", "1.e-4"}) {
    EXPECT_EQ(minimal({std::string("optimizer.lr=") + text}).optimizer.lr, 0.0001) << text;
  }
  EXPECT_EQ(minimal({"optimizer.lr=1"}).optimizer.lr, 1.0);
  EXPECT_EQ(minimal({"training.steps=+10"}).training.steps, 10);
  EXPECT_EQ(minimal({"run.seed=9223372036854775807"}).run.seed, 9223372036854775807u);
  EXPECT_EQ(minimal({"run.seed=0"}).run.seed, 0u);
  EXPECT_EQ(minimal({"training.log_every=0"}).training.log_every, 0);
  EXPECT_EQ(minimal({"parallel.dp_shard=3"}).parallel.dp_shard, 3);
  EXPECT_EQ(minimal({"parallel.dp_shard=auto"}).parallel.dp_shard, 0);
  EXPECT_EQ(minimal({"training.stop_after=7"}).training.stop_after, 7);
  EXPECT_EQ(minimal({"training.stop_after=none"}).training.stop_after, std::nullopt);
}

TEST(Reader, StringsStayStrings) {
  for (const char* text : {"no", "on", "off", "y", "yes", "true", "12", "1e3", "010"}) {
    EXPECT_EQ(minimal({std::string("run.dir=") + text}).run.dir, text) << text;
  }
  EXPECT_EQ(minimal({"run.dir=\"null\""}).run.dir, "null");
  // A comment needs a space before its sign.
  EXPECT_EQ(minimal({"run.dir='/data/a #b'"}).run.dir, "/data/a #b");
  EXPECT_EQ(minimal({"run.dir=/data/a#b"}).run.dir, "/data/a#b");
  EXPECT_EQ(minimal({"data.train=[\"a b\", 'c''d']"}).data.train,
            (std::vector<std::string>{"a b", "c'd"}));
  EXPECT_EQ(minimal({"data.train=[]"}).data.train.size(), 0u);
}

TEST(Reader, WindowsFilesReadTheSame) {
  std::string windows = "\xef\xbb\xbf";
  for (const char c : std::string(kContract)) windows += c == '\n' ? "\r\n" : std::string(1, c);
  EXPECT_EQ(to_yaml(load_text(windows)), to_yaml(load_text(kContract)));
  EXPECT_EQ(load_text(windows).run.dir, "runs/quickstart");
}

TEST(Reader, NearestName) {
  EXPECT_EQ(edit_distance("steps", "steps"), 0);
  EXPECT_EQ(edit_distance("stesp", "steps"), 1);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("lerning_rate", "learning_rate"), 1);
  EXPECT_EQ(nearest("kepe", {"every", "keep", "resume"}), 1);
  EXPECT_EQ(nearest("xy", {"ab", "cd"}), -1);
  EXPECT_EQ(nearest("a", {}), -1);
}

}  // namespace
}  // namespace tessera
