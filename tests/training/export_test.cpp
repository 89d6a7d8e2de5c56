// What training writes is what transformers, and training again, read: the names of the family,
// every field of config.json that changes the forward pass, and the numbers.
#include <ATen/ATen.h>

#include <set>

#include "base/files/files.h"
#include "base/text/json_text.h"
#include "data/pack.h"
#include "models/stage_chain.h"
#include "safetensors/reader.h"
#include "safetensors/writer.h"
#include "support/convert_model.h"
#include "support/folders.h"
#include "support/golden_models.h"
#include "support/read_tensors.h"
#include "support/read_weights.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

fs::path step_dir(const Config& config, int64_t step) {
  return fs::path(config.run.dir) / "checkpoints" / step_dir_name(step);
}

json read_json(const fs::path& file) {
  return parse_json(read_small_file(file, 1 << 20), file.string());
}

std::map<std::string, Dtype> dtypes_of(const fs::path& file) {
  std::map<std::string, Dtype> dtypes;
  for (const TensorEntry& entry : read_safetensors_header(File::open(file)).entries)
    dtypes[entry.name] = entry.dtype;
  return dtypes;
}

// The logarithms of all probabilities at 8 positions, [8, vocabulary].
at::Tensor log_probabilities(const Model& model, const fs::path& step) {
  const auto weights = read_weights(step);
  at::Tensor result;
  on_tp_ranks(1, [&](Mesh& mesh) {
    StageChain chain(model.make_stages(8, mesh, {}),
                     [&](const ParameterSpec& spec) { return weights.at(spec.name); });
    const int64_t vocab = model.input().vocab_size;
    const at::Tensor tokens = (at::arange(8, at::kLong) * 7 + 3).remainder(vocab).view({1, 8});
    result = chain.log_probabilities({tokens, tokens, at::ones({1, 8}), {}}, vocab);
  });
  return result;
}

// Evaluates after each step.
Config exporting(const TemporaryFolder& folder, const std::string& name) {
  Config config = tiny_config(folder, name);
  config.training.steps = 2;
  config.parallel.tp = 2;
  config.data.valid = config.data.train;
  config.eval.every = 1;
  config.eval.batches = 2;
  return config;
}

// `config` with the model and the weights of a Hugging Face folder, which stay as they are.
Config reading_back(Config config, const TemporaryFolder& folder, const fs::path& hf) {
  import_folder(hf, folder / "imported");
  config.run.dir = folder / "back";
  config.model = read_hf_model(hf / "config.json");
  config.checkpoint.init_from = folder / "imported";
  config.training.steps = 1;
  config.optimizer.lr = 1e-30;
  config.optimizer.weight_decay = 0.0;
  config.schedule.warmup_steps = 0;
  return config;
}

// Known faults H01, H02: names or their count were off; a tied model's head was exported twice, or
// left out while config.json said untied.
TEST(Export, LlamaHasTheNamesOfItsFamily) {
  for (const bool tied : {false, true}) {
    SCOPED_TRACE(tied);
    const TemporaryFolder folder;
    Config config = exporting(folder, "run");
    sizes(config).tie_word_embeddings = tied;
    config.parallel.dp_shard = 2;
    run(config);
    export_step(step_dir(config, 2), folder / "hf");

    std::set<std::string> expected = {"model.embed_tokens.weight", "model.norm.weight"};
    if (!tied) expected.insert("lm_head.weight");
    for (const std::string layer : {"model.layers.0.", "model.layers.1."})
      for (const char* part : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                               "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
                               "input_layernorm", "post_attention_layernorm"})
        expected.insert(layer + part + ".weight");
    ASSERT_EQ(expected.size(), tied ? 20U : 21U);
    const auto tensors = read_tensors(folder / "hf/model.safetensors");
    std::set<std::string> names;
    for (const auto& [name, tensor] : tensors) names.insert(name);
    EXPECT_EQ(names, expected);
    EXPECT_EQ(read_json(folder / "hf/config.json").at("tie_word_embeddings"), tied);

    // H06: rows of q and k stay where they are, since this program rotates halves as transformers
    // does.
    const std::string q = "model.layers.1.self_attn.q_proj.weight";
    EXPECT_TRUE(at::equal(tensors.at(q), read_weights(step_dir(config, 2)).at(q)));
    import_folder(folder / "hf", folder / "again");
    const AnyModel model = read_hf_model(folder / "hf/config.json");
    EXPECT_EQ(model, config.model);
    EXPECT_TRUE(at::equal(log_probabilities(*model, folder / "again"),
                          log_probabilities(*config.model, step_dir(config, 2))));
  }
}

// Known fault H05: config.json was missing, or had defaults where the model has its own values.
TEST(Export, ConfigJsonHasWhatTheModelHas) {
  const TemporaryFolder folder;
  Config config = exporting(folder, "run");
  LlamaConfig& model = sizes(config);
  model.rope_theta = 500000.0;
  model.rms_norm_eps = 1e-6;
  model.vocab_size = 5;
  model.num_key_value_heads = 1;
  const fs::path prefix = folder / "five";
  {
    std::ofstream out(prefix.string() + ".txt", std::ios::binary);
    for (int64_t i = 0; i < 100 * 16 + 1; ++i) out.put(static_cast<char>((7 * i + 3) % 5));
  }
  pack_bytes({prefix.string() + ".txt"}, prefix, {.any_bytes = true});
  config.data.train = config.data.valid = {prefix};
  config.precision.params = ParamsDtype::kBf16;
  const TinyRun trained = run(config);
  export_step(step_dir(config, 2), folder / "hf", {.dtype = Dtype::kBF16});

  const json exported = read_json(folder / "hf/config.json");
  const json expected = {{"architectures", {"LlamaForCausalLM"}},
                         {"model_type", "llama"},
                         {"hidden_size", 64},
                         {"intermediate_size", 96},
                         {"num_hidden_layers", 2},
                         {"num_attention_heads", 8},
                         {"num_key_value_heads", 1},
                         {"head_dim", 8},
                         {"vocab_size", 5},
                         {"hidden_act", "silu"},
                         {"rope_theta", 500000.0},
                         {"rms_norm_eps", 1e-6},
                         {"max_position_embeddings", 16},
                         {"tie_word_embeddings", false},
                         {"torch_dtype", "bfloat16"}};
  for (const auto& [key, value] : expected.items()) EXPECT_EQ(exported.at(key), value) << key;
  EXPECT_EQ(exported.at("rope_parameters").at("rope_theta"), 500000.0);
  for (const TensorEntry& entry :
       read_safetensors_header(File::open(folder / "hf/model.safetensors")).entries)
    if (entry.name == "model.embed_tokens.weight" || entry.name == "lm_head.weight") {
      EXPECT_EQ(entry.shape, (std::vector<int64_t>{5, 64})) << entry.name;  // no padding
    }

  const TinyRun back = run(reading_back(config, folder, folder / "hf"));
  EXPECT_EQ(back.evals[0].at("eval_loss"), trained.evals[1].at("eval_loss"));
}

class ExportOf : public ::testing::TestWithParam<const char*> {};

// The same of every language model: trained in bf16, whose file in bf16 is all that training sees.
TEST_P(ExportOf, IsReadBackAsTheSameModelAndNumbers) {
  const TemporaryFolder folder;
  const fs::path golden = fs::path(TESSERA_SOURCE_DIR) / "tests/golden/models" / GetParam();
  json sizes_there = read_json(golden / "config.json");
  sizes_there["vocab_size"] = 67;  // tp does not divide it
  Config config = exporting(folder, "run");
  config.model = model_from_hf(sizes_there, GetParam());
  config.precision.params = ParamsDtype::kBf16;
  const TinyRun trained = run(config);
  export_step(step_dir(config, 2), folder / "hf", {.dtype = Dtype::kBF16});
  for (const auto& [name, dtype] : dtypes_of(folder / "hf/model.safetensors"))
    EXPECT_EQ(dtype, Dtype::kBF16) << name;
  EXPECT_EQ(read_json(folder / "hf/config.json").at("torch_dtype"), "bfloat16");
  EXPECT_EQ(read_hf_model(folder / "hf/config.json"), config.model);
  const TinyRun back = run(reading_back(config, folder, folder / "hf"));
  EXPECT_EQ(back.evals[0].at("eval_loss"), trained.evals[1].at("eval_loss"));

  // Unasked, the fp32 master weights, bit for bit.
  export_step(step_dir(config, 2), folder / "hf32");
  for (const auto& [name, dtype] : dtypes_of(folder / "hf32/model.safetensors"))
    EXPECT_EQ(dtype, Dtype::kF32) << name;
  import_folder(folder / "hf32", folder / "imported32");
  const auto weights = read_weights(step_dir(config, 2)),
             again = read_weights(folder / "imported32");
  ASSERT_EQ(again.size(), weights.size());
  for (const auto& [name, tensor] : weights) EXPECT_TRUE(at::equal(again.at(name), tensor)) << name;
}

INSTANTIATE_TEST_SUITE_P(Models, ExportOf, ::testing::ValuesIn(kGoldenLanguageModels),
                         [](const auto& model) { return golden_test_name(model.param); });

// A model from a config.json keeps what that says besides the network, whether weights came along
// or not; what it leaves out is its class's in transformers, not the run's.
TEST(Export, OfAModelFromAConfigJsonDescribesTheModel) {
  const TemporaryFolder folder;
  Config config = exporting(folder, "run");
  json source = config.model->hf_config(16);
  source.update({{"max_position_embeddings", 4096},
                 {"bos_token_id", 7},
                 {"eos_token_id", {8, 9}},
                 {"pad_token_id", 0},
                 {"num_key_value_heads", nullptr},
                 {"architectures", {"LlamaModel"}},
                 {"hidden_act", "swish"},
                 {"auto_map", {{"AutoModel", "modeling_x.X"}}},
                 {"torch_dtype", "bfloat16"},
                 {"unknown_key", "kept"}});
  config.model = model_from_hf(source, "config.json");
  run(config);
  const auto exported = [&](const Config& of, int64_t step) {
    fs::remove_all(folder / "hf");
    export_step(step_dir(of, step), folder / "hf");
    return read_json(folder / "hf/config.json");
  };
  const auto expect_described = [&](const json& there, const std::string& label) {
    SCOPED_TRACE(label);
    for (const char* key : {"max_position_embeddings", "bos_token_id", "eos_token_id",
                            "pad_token_id", "hidden_act", "unknown_key"})
      EXPECT_EQ(there.at(key), source.at(key)) << key;
    EXPECT_EQ(there.at("num_key_value_heads"), 8);
    EXPECT_EQ(there.at("architectures"), json::array({"LlamaForCausalLM"}));
    EXPECT_EQ(there.at("torch_dtype"), "float32");
    EXPECT_FALSE(there.contains("auto_map"));
  };
  expect_described(exported(config, 2), "first");
  config.training.steps = 3;
  run(config);
  expect_described(exported(config, 3), "resumed");

  // From its weights with a config.json that says otherwise of the ids: what is said now holds.
  Config next = config;
  next.run.dir = folder / "next";
  next.checkpoint.init_from = step_dir(config, 3);
  source["eos_token_id"] = 5;
  source["max_position_embeddings"] = 8;  // shorter than what it was trained on
  next.model = model_from_hf(source, "config.json");
  run(next);
  source["max_position_embeddings"] = 16;
  expect_described(exported(next, 3), "next");

  // Left out, they are Llama's own, as in transformers.
  for (const char* key :
       {"max_position_embeddings", "bos_token_id", "eos_token_id", "pad_token_id"})
    source.erase(key);
  Config plain = exporting(folder, "plain");
  plain.model = model_from_hf(source, "config.json");
  run(plain);
  const json there = exported(plain, 2);
  EXPECT_EQ(there.at("max_position_embeddings"), 2048);
  EXPECT_EQ(there.at("bos_token_id"), 1);
  EXPECT_EQ(there.at("eos_token_id"), 2);
  EXPECT_EQ(there.at("pad_token_id"), nullptr);
}

// What an export carries is its start's: not the tokenizer of another model that an earlier start,
// killed before its first checkpoint, left in the run folder.
TEST(Export, CarriesTheFilesOfItsOwnStart) {
  const TemporaryFolder folder;
  Config config = exporting(folder, "run");
  run(config);
  const auto start_of = [&](const std::string& name, const std::vector<std::string>& files) {
    export_step(step_dir(config, 2), folder / (name + "-hf"));
    for (const std::string& file : files) {
      fs::create_directories((folder / (name + "-hf") / file).parent_path());
      std::ofstream(folder / (name + "-hf") / file) << name;
    }
    import_folder(folder / (name + "-hf"), folder / name);
    return folder / name;
  };
  const fs::path first = start_of("first", {"tokenizer.json", "vocab.json", "tokenization_x.py",
                                            "additional_chat_templates/a.jinja"});
  const fs::path second = start_of("second", {"tokenizer.json"});
  const fs::path none = start_of("other/starts/none", {});

  Config other = exporting(folder, "other");
  const auto exported = [&](int64_t step) {
    std::map<std::string, std::string> files;
    fs::remove_all(folder / "out");
    export_step(step_dir(other, step), folder / "out");
    for (const auto& entry : fs::recursive_directory_iterator(folder / "out")) {
      const fs::path name = entry.path().lexically_relative(folder / "out");
      if (entry.is_regular_file() && name != "config.json" && name != "model.safetensors")
        files[name] = read_small_file(entry.path(), 1 << 20);
    }
    return files;
  };
  const auto start_at = [&](const fs::path& start) {
    fs::remove_all(fs::path(other.run.dir) / "checkpoints");
    other.checkpoint.init_from = start;
    run(other);
    return exported(other.training.steps);
  };
  using Files = std::map<std::string, std::string>;
  EXPECT_EQ(start_at(first), (Files{{"tokenizer.json", "first"},
                                    {"vocab.json", "first"},
                                    {"tokenization_x.py", "first"},
                                    {"additional_chat_templates/a.jinja", "first"}}));
  EXPECT_EQ(start_at(second), (Files{{"tokenizer.json", "second"}}));
  other.training.steps = 3;  // goes on: the files stay, whatever init_from says by now
  other.checkpoint.init_from = first;
  run(other);
  EXPECT_EQ(exported(3), (Files{{"tokenizer.json", "second"}}));
  EXPECT_EQ(start_at(none), Files{});
  start_at(second);
  EXPECT_EQ(start_at({}), Files{});  // random weights
}

// Known fault H09: trained in bf16, exported as fp32: the cast was left out while the log said
// otherwise. 1.015625 is a bf16 number, and comes back as it was.
TEST(Export, OfABf16RunIsWhollyFp32AndExact) {
  const TemporaryFolder folder;
  Config config = exporting(folder, "run");
  config.precision.params = ParamsDtype::kBf16;
  run(config);
  export_step(step_dir(config, 2), folder / "hf");
  const fs::path file = folder / "hf/model.safetensors";
  std::vector<TensorSpec> specs;
  for (const TensorEntry& entry : read_safetensors_header(File::open(file)).entries)
    specs.push_back({entry.name, Dtype::kBF16, entry.shape});
  {
    SafetensorsWriter writer(file, specs, {});
    for (const TensorSpec& spec : specs) {
      const at::Tensor values = at::full(spec.shape, 1.015625, at::kBFloat16);
      writer.append(values.data_ptr(), static_cast<int64_t>(values.nbytes()));
    }
    writer.finish();
  }
  config = reading_back(config, folder, folder / "hf");
  run(config);
  export_step(step_dir(config, 1), folder / "out");
  const auto tensors = read_tensors(folder / "out/model.safetensors");
  EXPECT_EQ(tensors.size(), specs.size());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(tensor.scalar_type(), at::kFloat) << name;
    EXPECT_TRUE(at::all(tensor == 1.015625).item<bool>()) << name;
  }
  EXPECT_EQ(read_json(folder / "out/config.json").at("torch_dtype"), "float32");
}

}  // namespace
}  // namespace tessera
