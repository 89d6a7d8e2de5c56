// The table of every model's keys: what they mean, and config.json in both directions.
#include "models/model_key.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "base/fields/field_kinds.h"
#include "models/registry.h"

namespace tessera {
namespace {

using nlohmann::json;

class ModelKeys : public testing::TestWithParam<std::string> {
 protected:
  // With numbers for the keys that have no default.
  AnyModel small() const {
    AnyModel model(make_model(GetParam()));
    for (ModelKey& key : model->keys())
      if (auto* size = std::get_if<IntegerValue>(&key.value); size && key.required) size->set(8);
    model->complete();
    return model;
  }
};

// Every rate is one of dropout, and only those are.
TEST_P(ModelKeys, RatesOfDropoutHaveTheirRole) {
  AnyModel model = small();
  size_t rates = 0;
  for (const ModelKey& key : model->keys()) {
    const auto* real = std::get_if<RealValue>(&key.value);
    const bool is_rate = real && real->range.max == kRate.max && real->range.below_max;
    EXPECT_EQ(key.role == KeyRole::kDropoutRate, is_rate) << key.name;
    rates += is_rate ? 1 : 0;
  }
  EXPECT_GE(rates, 2U);
  EXPECT_EQ(model->keys_of(KeyRole::kDropoutRate).size(), rates);
  EXPECT_EQ(model->keys_of(KeyRole::kInitialSpread).size(), 1U);
}

TEST_P(ModelKeys, AreAskedForTheirRoleByName) {
  AnyModel model = small();
  for (const ModelKey& key : model->keys()) EXPECT_EQ(model->role_of(key.name), key.role);
  EXPECT_EQ(model->role_of("type"), KeyRole::kOther);
}

TEST_P(ModelKeys, HaveNamesOfTheirOwn) {
  AnyModel model = small();
  std::set<std::string> names, hf_names;
  for (const ModelKey& key : model->keys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    if (key.hf) {
      EXPECT_TRUE(hf_names.insert(key.hf_name()).second) << key.hf_name();
    }
  }
}

// A key that config.json leaves out, or says null for, has the value of the table, and one that the
// table has no value for is refused by its name.
TEST_P(ModelKeys, TakeWhatTheTableSaysForWhatIsNotThere) {
  AnyModel model = small();
  const json whole = model->hf_config(16);
  const auto read = [](json values, const ModelKey& key, const std::optional<json>& expected) {
    if (!expected) {
      try {
        model_from_hf(values, "S");
        ADD_FAILURE() << key.name << " was not missed";
      } catch (const UserError& error) {
        EXPECT_NE(std::string(error.what()).find("S: " + key.hf_name()), std::string::npos)
            << error.what();
      }
      return;
    }
    AnyModel again = model_from_hf(values, "S");
    json written;
    write_hf_keys(again->keys(), written);
    // 0 and null stand for a size that follows from others.
    if (*expected != 0 && !expected->is_null()) {
      EXPECT_EQ(written.at(key.hf_name()), *expected) << key.name;
    }
  };
  for (const ModelKey& key : model->keys()) {
    if (!key.hf) continue;
    SCOPED_TRACE(key.name);
    json values = whole;
    values.erase(key.hf_name());
    read(values, key, key.hf->left_out);
    values[key.hf_name()] = nullptr;
    read(values, key, key.hf->null);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ModelKeys, testing::ValuesIn(model_types()),
                         [](const auto& type) { return type.param; });

TEST(ModelKeyRoles, OnlyLlamaAndItsRelativesHaveRotaryPositions) {
  std::vector<std::string> rotary;
  for (const std::string& type : model_types())
    if (!make_model(type)->keys_of(KeyRole::kRotaryBase).empty()) rotary.push_back(type);
  EXPECT_EQ(rotary, (std::vector<std::string>{"llama", "mistral", "qwen2", "qwen3", "phi3"}));
}

TEST(HfKey, AChoiceHasOtherWordsThere) {
  bool flag = false;
  int choice_index = 0;
  const std::vector<ModelKey> keys = {
      {.name = "act",
       .value = ChoiceValue{{"gelu", "relu", "tanh"},
                            [&] { return choice_index; },
                            [&](int index) { choice_index = index; }},
       .doc = "",
       .hf = HfKey{.name = "hidden_act", .left_out = "gelu", .words = {{"rectified", "relu"}}}},
      {.name = "here_alone", .value = FlagValue{&flag}, .doc = ""}};
  const json given = {{"hidden_act", "rectified"}, {"here_alone", true}};
  read_hf_keys(HfConfig(given, "S"), keys);
  EXPECT_EQ(choice_index, 1);
  EXPECT_FALSE(flag);
  json written;
  write_hf_keys(keys, written);
  EXPECT_EQ(written, (json{{"hidden_act", "relu"}}));
  const json wrong = {{"hidden_act", "swish"}};
  try {
    read_hf_keys(HfConfig(wrong, "S"), keys);
    ADD_FAILURE() << "swish was taken";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "[config] S: hidden_act: \"swish\"; gelu, relu and tanh are supported");
  }
}

}  // namespace
}  // namespace tessera
