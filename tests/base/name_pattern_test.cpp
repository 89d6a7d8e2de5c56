#include "base/text/name_pattern.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tessera {
namespace {

const std::vector<std::string> kNames = {
    "model.embed_tokens.weight",
    "model.layers.0.input_layernorm.weight",
    "model.layers.0.mlp.gate_proj.weight",
    "model.layers.1.input_layernorm.weight",
    "model.layers.1.mlp.gate_proj.weight",
    "model.norm.weight",
    "lm_head.weight",
};

TEST(NamePattern, StarsAndQuestionMarks) {
  EXPECT_TRUE(matches_pattern("lm_head.weight", "lm_head.weight"));
  EXPECT_FALSE(matches_pattern("lm_head", "lm_head.weight"));
  EXPECT_FALSE(matches_pattern("lm_head.weight", "lm_head"));
  EXPECT_TRUE(matches_pattern("*", ""));
  EXPECT_TRUE(matches_pattern("*", "a.b"));
  EXPECT_TRUE(matches_pattern("", ""));
  EXPECT_FALSE(matches_pattern("", "a"));
  EXPECT_FALSE(matches_pattern("?", ""));
  EXPECT_TRUE(matches_pattern("model.layers.?.*", "model.layers.1.mlp.gate_proj.weight"));
  EXPECT_FALSE(matches_pattern("model.layers.?.*", "model.layers.10.mlp.gate_proj.weight"));
  EXPECT_TRUE(matches_pattern("*norm*", "model.layers.0.input_layernorm.weight"));
  EXPECT_TRUE(matches_pattern("*norm.weight", "model.norm.weight"));
  EXPECT_FALSE(matches_pattern("*norm", "model.norm.weight"));
  EXPECT_TRUE(matches_pattern("**a*b*", "xaxbx"));
  EXPECT_FALSE(matches_pattern("*a*b*", "xbxax"));
  EXPECT_TRUE(matches_pattern("*ab", "aab"));  // the star must not take the first a alone
  EXPECT_FALSE(matches_pattern("model.norm[a]", "model.norma"));  // brackets mean themselves
}

TEST(NamePattern, NearNamesAreKindsNearestFirst) {
  EXPECT_EQ(near_names("model.layers.*.mlp.gat_proj.weight", kNames, 2),
            (std::vector<std::string>{"model.layers.*.mlp.gate_proj.weight",
                                      "model.layers.*.input_layernorm.weight"}));
  EXPECT_EQ(near_names("lm_heat*", kNames, 1), std::vector<std::string>{"lm_head.weight"});
  EXPECT_EQ(near_names("x", {}).size(), 0U);
  EXPECT_EQ(near_names("x", kNames, 100).size(), 5U);
}

TEST(NamePattern, OneThatMatchesNothingIsAnErrorWithNearNames) {
  check_matches_some("optimizer.groups[0].params", "*.input_layernorm.*", kNames);
  try {
    check_matches_some("optimizer.groups[0].params", "*embed_token.weight", kNames);
    FAIL() << "no error";
  } catch (const UserError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("[config] optimizer.groups[0].params: '*embed_token.weight' matches no "
                        "parameter"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("names near it: model.embed_tokens.weight"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace tessera
