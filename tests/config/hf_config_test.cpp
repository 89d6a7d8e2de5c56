// model.config: a Hugging Face config.json as it is.

#include <gtest/gtest.h>

#include "config/load.h"
#include "config/rules/check.h"
#include "config/save.h"
#include "config_text.h"

namespace tessera {
namespace {

using testing::expect_user_error;
using testing::sizes;
using testing::TempDir;

// As transformers 4 saves LlamaForCausalLM.
const char* kLlama4 = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 1, "eos_token_id": 2, "head_dim": 16, "hidden_act": "silu", "hidden_size": 64,
  "initializer_range": 0.01, "intermediate_size": 192, "max_position_embeddings": 2048,
  "mlp_bias": false, "model_type": "llama", "num_attention_heads": 4, "num_hidden_layers": 2,
  "num_key_value_heads": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
  "rope_theta": 500000, "tie_word_embeddings": false, "torch_dtype": "float32",
  "transformers_version": "4.46.0", "use_cache": true, "vocab_size": 256})";

const char* kTraining =
    "run: {dir: a}\ndata: {train: [d], seq_len: 8}\ntraining: {steps: 1, global_batch_size: 1}\n";

// A model of few numbers, as the required keys make it.
AnyModel small_model(const std::string& type) {
  AnyModel model(make_model(type));
  for (Field& field : model->fields())
    if (auto* size = std::get_if<IntegerValue>(&field.value); size && field.required)
      size->set(field.name.find("head") == std::string::npos ? 8 : 4);
  model->complete();
  check_model(model);
  return model;
}

Config load_with(const TempDir& dir, const std::string& model,
                 const std::vector<std::string>& overrides = {}) {
  return load_config(dir.write("c.yaml", kTraining + model + "\n"), overrides);
}

Config load_json(const nlohmann::json& json) {
  const TempDir dir;
  dir.write("config.json", json.dump());
  return load_with(dir, "model: {config: config.json}");
}

// The same for a model of images.
Config load_images(const nlohmann::json& json) {
  const TempDir dir;
  dir.write("config.json", json.dump());
  return load_config(dir.write("c.yaml",
                               "run: {dir: a}\ndata: {kind: images, train: [d]}\n"
                               "training: {steps: 1, global_batch_size: 1}\n"
                               "model: {config: config.json}\n"),
                     {});
}

TEST(HfConfig, Transformers4) {
  const TempDir dir;
  std::filesystem::create_directory(dir.path() / "hf");
  dir.write("hf/config.json", kLlama4);
  const Config config = load_with(dir, "model: {config: hf/config.json}");  // relative to the YAML
  check_config(config);
  const LlamaConfig expected{.hidden_size = 64,
                             .intermediate_size = 192,
                             .num_hidden_layers = 2,
                             .num_attention_heads = 4,
                             .num_key_value_heads = 2,
                             .vocab_size = 256,
                             .rope_theta = 500000.0,
                             .rms_norm_eps = 1e-5,
                             .tie_word_embeddings = false,
                             .initializer_range = 0.01};
  EXPECT_EQ(sizes(config), expected);
  // The resolved configuration stands on its own.
  EXPECT_NE(to_yaml(config).find("type: llama\n  hidden_size: 64\n"), std::string::npos);
  // On the command line a path starts from the current folder.
  EXPECT_EQ(load_with(dir, "", {"model.config=" + (dir.path() / "hf/config.json").string()}).model,
            config.model);
}

TEST(HfConfig, DefaultsOfLlamaConfig) {
  nlohmann::json json = nlohmann::json::parse(kLlama4);
  for (const char* key : {"num_key_value_heads", "rope_theta", "rms_norm_eps", "initializer_range",
                          "tie_word_embeddings", "head_dim", "hidden_act", "attention_bias"}) {
    json.erase(key);
  }
  const Config config = load_json(json);
  const LlamaConfig& model = sizes(config);
  EXPECT_EQ(model.num_key_value_heads, 4);
  EXPECT_EQ(model.rope_theta, 10000.0);
  EXPECT_EQ(model.rms_norm_eps, 1e-6);
  EXPECT_EQ(model.initializer_range, 0.02);
  EXPECT_FALSE(model.tie_word_embeddings);
}

TEST(HfConfig, ReadsAttentionDropout) {
  nlohmann::json json = nlohmann::json::parse(kLlama4);
  json["attention_dropout"] = 0.1;
  EXPECT_EQ(sizes(load_json(json)).attention_dropout, 0.1);
}

TEST(HfConfig, Transformers5) {
  nlohmann::json json = nlohmann::json::parse(kLlama4);
  json.erase("rope_theta");
  json.erase("rope_scaling");
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1234.5}};
  EXPECT_EQ(sizes(load_json(json)).rope_theta, 1234.5);
}

TEST(HfConfig, ReadsScaledRotaryPositionsOfBothVersions) {
  nlohmann::json json = nlohmann::json::parse(kLlama4);
  const nlohmann::json llama3 = {{"rope_type", "llama3"},
                                 {"factor", 32.0},
                                 {"low_freq_factor", 1.5},
                                 {"high_freq_factor", 5.0},
                                 {"original_max_position_embeddings", 4096}};
  const RopeScaling expected{RopeScalingType::kLlama3, 32.0, 1.5, 5.0, 4096};
  json["rope_scaling"] = llama3;
  EXPECT_EQ(sizes(load_json(json)).rope_scaling, expected);
  EXPECT_EQ(sizes(load_json(json)).rope_theta, 500000.0);
  json.erase("rope_scaling");
  json.erase("rope_theta");
  json["rope_parameters"] = llama3;
  json["rope_parameters"]["rope_theta"] = 1234.5;
  const Config config = load_json(json);
  check_config(config);
  EXPECT_EQ(sizes(config).rope_scaling, expected);
  EXPECT_EQ(sizes(config).rope_theta, 1234.5);
  // There and back.
  EXPECT_EQ(model_from_hf(config.model->hf_config(16), "again"), config.model);
  json["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 2}};
  EXPECT_EQ(sizes(load_json(json)).rope_scaling.type, RopeScalingType::kLinear);
  // By 1 it is none.
  json["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 1}};
  EXPECT_EQ(sizes(load_json(json)).rope_scaling, RopeScaling());
}

// transformers' releases differ in which of two that contradict each other they take.
TEST(HfConfig, RefusesRotaryPositionsThatContradictEachOther) {
  const nlohmann::json plain = nlohmann::json::parse(kLlama4);
  nlohmann::json json = plain;
  json["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 500000.0}};
  json["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  EXPECT_EQ(sizes(load_json(json)).rope_scaling.factor, 2.0);
  for (const nlohmann::json& other :
       {nlohmann::json{{"type", "linear"}, {"factor", 4.0}}, {{"rope_type", "default"}}}) {
    json["rope_scaling"] = other;
    expect_user_error([&] { load_json(json); },
                      {"rope_scaling: ", "must say the same as rope_parameters"}, other.dump());
  }
  json["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}, {"rope_theta", 10.0}};
  expect_user_error([&] { load_json(json); },
                    {"rope_theta: 500000; must say the same as rope_scaling.rope_theta 10.0"},
                    "a base of its own");
  json.erase("rope_theta");
  expect_user_error([&] { load_json(json); }, {"must say the same as rope_parameters"}, "bases");
  json = plain;
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 10000.0}};
  expect_user_error([&] { load_json(json); },
                    {"rope_theta: 500000; must say the same as rope_parameters.rope_theta 10000.0"},
                    "the base outside");
  json = plain;
  json["rope_scaling"] = {{"type", "linear"}, {"rope_type", "default"}, {"factor", 2.0}};
  expect_user_error([&] { load_json(json); },
                    {"rope_scaling: type: \"linear\"; must say the same as rope_type default"},
                    "types");
  json["rope_scaling"] = {{"rope_type", "llama3"},
                          {"factor", 8.0},
                          {"low_freq_factor", 1.0},
                          {"high_freq_factor", 4.0},
                          {"original_max_position_embeddings", 4096}};
  json["original_max_position_embeddings"] = 8192;
  expect_user_error([&] { load_json(json); }, {"original_max_position_embeddings: 8192", "4096"},
                    "length");
}

TEST(HfConfig, RefusesRotaryNumbersThatSayNothing) {
  const struct {
    nlohmann::json map;
    std::string part;
  } cases[] = {
      {{{"factor", 2.0}}, "factor: 2.0; has no rope_type beside it"},
      {{{"rope_type", "default"}, {"factor", 2.0}},
       "factor: 2.0; does not belong to rope_type def"},
      {{{"type", "linear"}, {"factor", 2.0}, {"low_freq_factor", 1.0}},
       "low_freq_factor: 1.0; does not belong to rope_type linear"},
      {{{"rope_type", "linear"}, {"factor", 2.0}, {"attention_factor", 1.5}},
       "attention_factor: 1.5; does not belong"},
      {{{"full_attention", {{"rope_type", "default"}}}}, "by kind of layer are not supported"},
      {{{"rope_type", "default"}, {"rope_theta", 0}}, "rope_theta: 0.0; must be above 0"},
  };
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    nlohmann::json json = nlohmann::json::parse(kLlama4);
    json.erase("rope_theta");
    for (const auto& bad : cases) {
      json[key] = bad.map;
      expect_user_error([&] { load_json(json); }, {std::string(key) + ": ", bad.part},
                        bad.map.dump());
    }
    // What says nothing at all is taken.
    for (const nlohmann::json& none :
         {nlohmann::json::object(), nlohmann::json{{"rope_type", "default"}, {"factor", 1.0}},
          nlohmann::json{{"rope_type", "default"}, {"factor", nullptr}}}) {
      json[key] = none;
      EXPECT_EQ(sizes(load_json(json)).rope_scaling, RopeScaling()) << none;
    }
    json.erase(key);
  }
}

// As transformers does it: outside of the map, and else the longest context.
TEST(HfConfig, Llama3sFirstLengthMayStandOutsideOfItsMap) {
  nlohmann::json json = nlohmann::json::parse(kLlama4);
  json["rope_scaling"] = {{"rope_type", "llama3"},
                          {"factor", 8.0},
                          {"low_freq_factor", 1.0},
                          {"high_freq_factor", 4.0}};
  const auto length = [&] {
    return sizes(load_json(json)).rope_scaling.original_max_position_embeddings;
  };
  EXPECT_EQ(length(), 2048);
  json["original_max_position_embeddings"] = 512;
  EXPECT_EQ(length(), 512);
  json.erase("original_max_position_embeddings");
  json.erase("max_position_embeddings");
  expect_user_error([&] { load_json(json); }, {"must have original_max_position_embeddings"},
                    "none");
}

// The class's default holds where the key is left out; null is as many as query heads.
TEST(HfConfig, NullKvHeadsAreAsManyAsQueryHeads) {
  for (const char* type : {"llama", "mistral", "qwen2", "qwen3", "phi3"}) {
    nlohmann::json json = nlohmann::json::parse(kLlama4);
    json["model_type"] = type;
    json["num_key_value_heads"] = nullptr;
    EXPECT_EQ(sizes(load_json(json)).num_key_value_heads, 4) << type;
  }
}

TEST(HfConfig, NullIsNoNumberThatNobodyWrote) {
  nlohmann::json json = nlohmann::json::parse(kLlama4);
  json["head_dim"] = nullptr;  // of these, none is meant
  json["attention_dropout"] = nullptr;
  EXPECT_EQ(sizes(load_json(json)).head_dim(), 16);
  for (const char* key : {"rms_norm_eps", "initializer_range", "tie_word_embeddings", "hidden_act",
                          "rope_theta", "attention_bias"}) {
    nlohmann::json bad = json;
    bad[key] = nullptr;
    expect_user_error([&] { load_json(bad); }, {std::string(key) + ": null", "or be left out"},
                      key);
  }
  json["model_type"] = "qwen3";  // its heads are 128 wide where nothing is said
  expect_user_error([&] { load_json(json); }, {"head_dim: null", "or be left out"}, "qwen3");
}

TEST(HfConfig, OtherNamesOfAnActivation) {
  nlohmann::json json = nlohmann::json::parse(kLlama4);
  const Config silu = load_json(json);
  json["hidden_act"] = "swish";
  EXPECT_EQ(load_json(json).model, silu.model);
  json = small_model("gpt2")->hf_config(64);
  for (const auto& [name, same] : {std::pair("gelu_fast", "gelu_new"),
                                   {"gelu_python", "gelu"},
                                   {"gelu_accurate", "gelu_new"}}) {
    json["activation_function"] = name;
    const AnyModel model = model_from_hf(json, name);
    json["activation_function"] = same;
    EXPECT_EQ(model, model_from_hf(json, same)) << name;
  }
}

TEST(HfConfig, BiasesOfAttention) {
  for (const char* type : {"llama", "qwen3"}) {
    nlohmann::json json = nlohmann::json::parse(kLlama4);
    json["model_type"] = type;
    json["attention_bias"] = true;
    const Config config = load_json(json);
    EXPECT_TRUE(sizes(config).attention_bias) << type;
    EXPECT_EQ(config.model->hf_config(8).at("attention_bias"), true) << type;
    EXPECT_EQ(model_from_hf(config.model->hf_config(8), "again"), config.model) << type;
    EXPECT_NE(to_yaml(config).find("attention_bias: true\n"), std::string::npos) << type;
  }
  for (const char* type : {"mistral", "phi3"}) {  // their classes have none
    nlohmann::json json = nlohmann::json::parse(kLlama4);
    json["model_type"] = type;
    json["attention_bias"] = true;
    expect_user_error([&] { load_json(json); }, {"attention_bias: true; only false"}, type);
  }
}

TEST(HfConfig, RefusesAttentionInBothDirections) {
  for (const std::string& type : model_types()) {
    nlohmann::json json = small_model(type)->hf_config(64);
    if (model_from_hf(json, type)->input().kind != DataKind::kTokens) continue;
    json["is_causal"] = true;
    EXPECT_NO_THROW(model_from_hf(json, type));
    json["is_causal"] = false;
    expect_user_error([&] { model_from_hf(json, type); }, {"is_causal: false"}, type);
  }
}

TEST(HfConfig, RefusesWhatTheModelsClassInTransformersCannotLoad) {
  nlohmann::json json = small_model("phi3")->hf_config(64);
  json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.0}};
  json.erase("rope_parameters");
  expect_user_error([&] { model_from_hf(json, "phi3"); }, {"rope_scaling: ", "longrope"}, "phi3");
  json = small_model("gpt2")->hf_config(64);
  json["num_attention_heads"] = 1000;
  expect_user_error([&] { model_from_hf(json, "gpt2"); }, {"num_attention_heads: 1000"}, "gpt2");
}

// Every model's config.json reads back as the same model.
TEST(HfConfig, ThereAndBackForEveryModel) {
  for (const std::string& type : model_types()) {
    SCOPED_TRACE(type);
    const AnyModel model = small_model(type);
    EXPECT_EQ(model_from_hf(model->hf_config(64), "again"), model);
  }
}

// A classifier of ImageNet-21k names 21,843 classes twice.
TEST(HfConfig, MayBeAsLargeAsAnImportTakes) {
  nlohmann::json json = small_model("vit")->hf_config(0);
  for (int i = 0; i < 21843; ++i) json["id2label"][std::to_string(i)] = std::string(60, 'x');
  ASSERT_GT(json.dump().size(), size_t{1} << 20);
  EXPECT_EQ(load_images(json).model->input().num_labels, 21843);
}

// Another problem_type is another loss, and so is a single class, which transformers takes for a
// regression.
TEST(HfConfig, VitIsAClassifierOfSeveralClasses) {
  nlohmann::json json = small_model("vit")->hf_config(0);
  for (const nlohmann::json& type :
       {nlohmann::json(), nlohmann::json("single_label_classification")}) {
    json["problem_type"] = type;
    EXPECT_NO_THROW(load_images(json)) << type;
  }
  for (const char* type : {"multi_label_classification", "regression"}) {
    json["problem_type"] = type;
    expect_user_error(
        [&] { load_images(json); },
        {std::string("problem_type: \"") + type + "\"; only \"single_label_classification\""},
        type);
  }
  json["problem_type"] = nullptr;
  json["id2label"] = {{"0", "alone"}};
  expect_user_error([&] { load_images(json); },
                    {"id2label: {\"0\":\"alone\"}; must be", "at least 2"}, "names");
  json["num_labels"] = 1;
  expect_user_error([&] { load_images(json); }, {"num_labels: 1; must be at least 2 classes"},
                    "number");
  const TempDir dir;
  expect_user_error(
      [&] {
        load_with(dir,
                  "model: {type: vit, hidden_size: 8, intermediate_size: 8, num_hidden_layers: 1, "
                  "num_attention_heads: 4, num_labels: 1}");
      },
      {"model.num_labels: 1", "from 2"}, "YAML");
}

TEST(HfConfig, WindowsOfSomeLayersAlone) {
  nlohmann::json json = nlohmann::json::parse(kLlama4);
  json["model_type"] = "qwen2";
  json["use_sliding_window"] = true;
  json["max_window_layers"] = 2;  // none of its two layers has one
  EXPECT_NO_THROW(load_json(json));
  json["max_window_layers"] = 1;
  expect_user_error([&] { load_json(json); }, {"use_sliding_window: true", "not supported"}, "1");
  json["max_window_layers"] = "1";
  expect_user_error([&] { load_json(json); }, {"max_window_layers: \"1\"", "an integer"}, "text");
  json["use_sliding_window"] = false;
  json["max_window_layers"] = 1;
  json["layer_types"] = {"full_attention", "sliding_attention"};
  expect_user_error([&] { load_json(json); }, {"layer_types: \"sliding_attention\""}, "types");
}

TEST(HfConfig, HeadsOfAnotherWidth) {
  nlohmann::json json = nlohmann::json::parse(kLlama4);
  json["head_dim"] = 32;
  const Config config = load_json(json);
  check_config(config);
  EXPECT_EQ(sizes(config).head_dim(), 32);
  EXPECT_EQ(config.model->hf_config(8).at("head_dim"), 32);
}

TEST(HfConfig, DropoutThatNoConfigJsonHasStandsBesideIt) {
  const TempDir dir;
  dir.write("config.json", kLlama4);
  const Config config = load_with(dir, "model: {config: config.json, hidden_dropout: 0.25}");
  EXPECT_EQ(sizes(config).hidden_dropout, 0.25);
  EXPECT_EQ(sizes(config).hidden_size, 64);
}

TEST(HfConfig, Mistral) {
  nlohmann::json json = nlohmann::json::parse(kLlama4);
  json["model_type"] = "mistral";
  EXPECT_EQ(sizes(load_json(json)).sliding_window, 4096);  // transformers' default
  json["sliding_window"] = nullptr;
  EXPECT_EQ(sizes(load_json(json)).sliding_window, 0);
  json["sliding_window"] = 7;
  const Config config = load_json(json);
  EXPECT_EQ(sizes(config).sliding_window, 7);
  EXPECT_EQ(config.model->hf_config(8).at("architectures"),
            nlohmann::json::array({"MistralForCausalLM"}));
  EXPECT_NE(to_yaml(config).find("sliding_window: 7\n"), std::string::npos);
}

TEST(HfConfig, RefusesWhatTheModelCannotDo) {
  const nlohmann::json null;
  const struct {
    const char* key;
    nlohmann::json value;
    std::vector<std::string> parts;
  } cases[] = {
      {"model_type", "bert", {"model_type: \"bert\"", "the models of this program are llama, "}},
      {"model_type", null, {"model_type: null"}},
      {"hidden_act", "gelu", {"hidden_act: \"gelu\"", "only \"silu\""}},
      {"mlp_bias", true, {"mlp_bias: true", "bias are not supported"}},
      {"attention_bias", "no", {"attention_bias: \"no\"", "true or false"}},
      {"attention_dropout", 1.0, {"attention_dropout: 1.0", "at least 0 and below 1"}},
      {"attention_dropout", "x", {"attention_dropout: \"x\"", "must be a number"}},
      {"rope_scaling",
       {{"rope_type", "llama3"}, {"factor", 8}},
       {"rope_scaling: ", "llama3", "must have low_freq_factor"}},
      {"rope_scaling", {{"type", "dynamic"}, {"factor", 2}}, {"rope_scaling: ", "dynamic"}},
      {"rope_parameters", {{"rope_type", "yarn"}}, {"rope_parameters: ", "yarn"}},
      {"rope_parameters", {{"rope_theta", "x"}}, {"rope_theta: \"x\"", "must be a number"}},
      {"rope_parameters", "x", {"rope_parameters: \"x\""}},
      {"partial_rotary_factor", 0.5, {"partial_rotary_factor: 0.5"}},
      {"quantization_config", {{"bits", 4}}, {"quantized models"}},
      {"head_dim", "32", {"head_dim: \"32\"", "integer from 1"}},
      {"hidden_size", null, {"hidden_size is missing"}},
      {"hidden_size", 64.5, {"hidden_size: 64.5", "integer from 1"}},
      {"hidden_size", "64", {"hidden_size: \"64\"", "integer from 1"}},
      {"vocab_size", 0, {"vocab_size: 0", "integer from 1"}},
      {"vocab_size", 4294967296, {"vocab_size: 4294967296", "2147483647"}},
      {"rope_theta", "1e4", {"rope_theta: \"1e4\"", "must be a number"}},
  };
  for (const auto& bad : cases) {
    nlohmann::json json = nlohmann::json::parse(kLlama4);
    json[bad.key] = bad.value;
    expect_user_error([&] { load_json(json); }, bad.parts, bad.key);
    expect_user_error([&] { load_json(json); },
                      {"[config] ", "config.json: ", "(model.config at ", "c.yaml:4:17"}, bad.key);
  }
}

// The same rules for JSON that comes from elsewhere than a file of its own.
TEST(HfConfig, JsonFromAnotherPlace) {
  nlohmann::json json = nlohmann::json::parse(kLlama4);
  EXPECT_EQ(dynamic_cast<const DecoderModel&>(*model_from_hf(json, "step-1")).config.rope_theta,
            500000.0);
  json["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 8}};
  expect_user_error([&] { model_from_hf(json, "step-1"); },
                    {"[config] step-1: rope_scaling: ", "yarn"}, "rope");
  expect_user_error([] { model_from_hf(nlohmann::json::array(), "step-1"); },
                    {"step-1: must be a JSON object"}, "list");
}

TEST(HfConfig, RefusesFilesAndOtherKeys) {
  const TempDir dir;
  dir.write("config.json", kLlama4);
  dir.write("broken.json", "{\"hidden_size\": 64,\n\"a\" 1}");
  dir.write("twice.json", "{\"hidden_size\": 64, \"hidden_size\": 32}");
  dir.write("list.json", "[]");
  const struct {
    const char* model;
    std::vector<std::string> parts;
  } cases[] = {
      {"model: {config: none.json}", {"cannot open", "none.json: No such file", "c.yaml:4:17"}},
      {"model: {config: broken.json}", {"broken.json: not valid JSON", "line 2"}},
      {"model: {config: list.json}", {"list.json: must be a JSON object"}},
      {"model: {config: twice.json}", {"twice.json: key 'hidden_size' is given twice"}},
      {"model: {config: .}", {"is not a regular file"}},
      {"model: {config: ''}", {"model.config: \"\""}},
      {"model: {config: ~}", {"model.config: null"}},
      {"model: {config: [a]}", {"model.config: a list"}},
      {"model: {config: config.json, type: llama}",
       {"c.yaml:4:30: model.type: beside model.config", "remove one"}},
      {"model: {hidden_size: 64, config: config.json}",
       {"c.yaml:4:9: model.hidden_size: beside model.config"}},
  };
  for (const auto& bad : cases) {
    expect_user_error([&] { load_with(dir, bad.model); }, bad.parts, bad.model);
  }
  expect_user_error([&] { load_with(dir, "model: {config: config.json}", {"model.vocab_size=8"}); },
                    {"--set model.vocab_size: model.vocab_size: beside model.config",
                     "leaves only attention_dropout and hidden_dropout and embedding_dropout"},
                    "override");
  const Config config =
      load_with(dir, "model: {config: config.json}", {"model.attention_dropout=0.25"});
  EXPECT_EQ(sizes(config).attention_dropout, 0.25);
}

}  // namespace
}  // namespace tessera
