#include "checkpoint/huggingface/consolidate.h"
#include "checkpoint/huggingface/import.h"
#include "checkpoint/store/inspect.h"

#include <unistd.h>

#include <set>
#include <sstream>

#include "base/text/json_text.h"
#include "checkpoint/format/rank_file.h"
#include "checkpoint_testing.h"
#include "safetensors/reader.h"
#include "safetensors/writer.h"
#include "support/as_nobody.h"

namespace tessera::testing {
namespace {

using nlohmann::json;

class Converts : public Scratch {
 protected:
  void SetUp() override { fs::create_directory(hf_); }

  // A Hugging Face file of fp32 or bf16 tensors whose elements are start, start + 1, ...
  void write_hf(const std::string& name, const std::vector<TensorSpec>& specs, float start = 0) {
    SafetensorsWriter writer(hf_ / name, specs, {{"format", "pt"}});
    for (const TensorSpec& spec : specs)
      for (int64_t i = 0; i < whole_box(spec.shape).numel(); ++i) {
        const float value = start + static_cast<float>(i);
        uint32_t bits;
        std::memcpy(&bits, &value, 4);
        const auto half = static_cast<uint16_t>(bits >> 16);
        if (spec.dtype == Dtype::kF32) writer.append(&value, 4);
        if (spec.dtype == Dtype::kBF16) writer.append(&half, 2);
        if (spec.dtype == Dtype::kI64) {
          const int64_t number = i;
          writer.append(&number, 8);
        }
      }
    writer.finish();
  }
  void write_config(const json& more = json::object()) {
    json config{{"model_type", "llama"},    {"rope_theta", 500000.0}, {"rms_norm_eps", 1e-6},
                {"num_key_value_heads", 1}, {"vocab_size", 5},        {"torch_dtype", "bfloat16"}};
    config.update(more);
    spit(hf_ / "config.json", config.dump());
  }
  static HfModel llama(const json& config) {
    HfModel model;
    model.tensors.architecture = "LlamaForCausalLM";
    if (config.value("tie_word_embeddings", false))
      model.tensors.tied = {"lm_head.weight", "model.embed_tokens.weight"};
    model.tensors.ignored = {"rotary_emb.inv_freq"};
    return model;
  }
  static ConsolidateOptions exporting(const std::function<HfModel(const json&)>& model) {
    ConsolidateOptions options;
    options.tensors = [model](const json& config) { return model(config).tensors; };
    return options;
  }
  // A message, and that nothing was left of the output.
  std::string import_error() {
    const std::string message = user_error([&] { import_hugging_face(hf_, step_, llama); });
    EXPECT_FALSE(fs::exists(step_));
    EXPECT_EQ(names_with(".partial"), 0);
    return message;
  }
  int names_with(const std::string& part) const {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(dir_))
      count += entry.path().filename().string().find(part) != std::string::npos ? 1 : 0;
    return count;
  }
  static std::string data_of(const fs::path& file, const std::string& tensor) {
    const SafetensorsHeader header = read_safetensors_header(File::open(file));
    for (const TensorEntry& entry : header.entries)
      if (entry.name == tensor)
        return slurp(file).substr(static_cast<size_t>(header.data_begin + entry.begin),
                                  static_cast<size_t>(entry.end - entry.begin));
    return "no such tensor";
  }

  const std::vector<TensorSpec> two_{{"model.embed_tokens.weight", Dtype::kBF16, {5, 3}},
                                     {"model.norm.weight", Dtype::kBF16, {3}}};
  std::vector<std::string> notes_;  // of the last import
  fs::path hf_ = dir_ / "hf", step_ = dir_ / "import", out_ = dir_ / "out";
};

TEST_F(Converts, ImportThenConsolidateIsTheIdentity) {
  write_hf("model.safetensors", two_);
  write_config();
  import_hugging_face(hf_, step_, llama);
  const Manifest manifest = read_manifest(step_);
  EXPECT_EQ(manifest.step, 0);
  EXPECT_EQ(manifest.states, std::vector<std::string>{kStateParam});
  EXPECT_TRUE(manifest.config.is_null());
  CheckpointReader reader(step_);
  EXPECT_EQ(reader.stored_dtype("model.norm.weight", kStateParam), Dtype::kF32);
  verify_all(step_);

  ConsolidateOptions options = exporting(llama);
  options.dtype = Dtype::kBF16;
  consolidate(step_, out_, options);
  for (const TensorSpec& spec : two_)
    EXPECT_EQ(data_of(out_ / "model.safetensors", spec.name),
              data_of(hf_ / "model.safetensors", spec.name));
  const json config = parse_json(slurp(out_ / "config.json"), "config.json");
  EXPECT_EQ(config["rope_theta"], 500000.0);
  EXPECT_EQ(config["rms_norm_eps"], 1e-6);
  EXPECT_EQ(config["num_key_value_heads"], 1);
  EXPECT_EQ(config["vocab_size"], 5);
  EXPECT_EQ(config["torch_dtype"], "bfloat16");
  EXPECT_EQ(config["architectures"], json::array({"LlamaForCausalLM"}));
  EXPECT_EQ(read_safetensors_header(File::open(out_ / "model.safetensors")).metadata.at("format"),
            "pt");

  consolidate(step_, dir_ / "fp32", {});
  EXPECT_EQ(parse_json(slurp(dir_ / "fp32" / "config.json"), "")["torch_dtype"], "float32");
  EXPECT_EQ(data_of(dir_ / "fp32" / "model.safetensors", "model.norm.weight").size(), 12u);
}

TEST_F(Converts, ConsolidateGathersAnyMesh) {
  for (const auto& [shards, tps] : {std::pair(1, 1), {2, 2}, {3, 4}, {4, 1}}) {
    const fs::path step = save_on_mesh(dir_, shards * 10 + tps, shards, tps, kAllStates);
    const fs::path out = dir_ / fmt::format("out-{}-{}", shards, tps);
    consolidate(step, out.string() + "/", {});
    for (const TensorInfo& tensor : test_tensors()) {
      const std::string data = data_of(out / "model.safetensors", tensor.name);
      ASSERT_EQ(static_cast<int64_t>(data.size()), whole_box(tensor.shape).numel() * 4);
      for (size_t i = 0; i < data.size() / 4; ++i) {
        float value;
        std::memcpy(&value, data.data() + i * 4, 4);
        ASSERT_EQ(value, test_value(tensor.name, kStateParam, static_cast<int64_t>(i)));
      }
    }
  }
}

TEST_F(Converts, LargeModelsGetShardsAndAnIndexThatImportReads) {
  const fs::path step = save_on_mesh(dir_, 1, 2, 2, {kStateParam});
  ConsolidateOptions options;
  options.max_shard_bytes = 240;
  consolidate(step, out_, options);
  const json index = parse_json(slurp(out_ / "model.safetensors.index.json"), "index");
  int64_t total = 0;
  std::set<std::string> names;
  for (const TensorInfo& tensor : test_tensors()) {
    total += whole_box(tensor.shape).numel() * 4;
    const std::string file = index["weight_map"][tensor.name];
    names.insert(file);
    EXPECT_NE(data_of(out_ / file, tensor.name), "no such tensor");
  }
  EXPECT_EQ(index["metadata"]["total_size"], total);
  EXPECT_GE(names.size(), 4u);
  EXPECT_EQ(*names.begin(), fmt::format("model-00001-of-{:05}.safetensors", names.size()));
  EXPECT_FALSE(fs::exists(out_ / "model.safetensors"));

  import_hugging_face(out_, step_);
  CheckpointReader reader(step_);
  EXPECT_NO_THROW(check_tensors(reader.manifest(), test_tensors()));
  expect_rank_reads(reader, 1, 3, 1, 2, {kStateParam});

  // Without the index, the names still say how many files there must be.
  fs::remove(out_ / "model.safetensors.index.json");
  import_hugging_face(out_, dir_ / "again");
  fs::remove(out_ / *names.begin());
  EXPECT_TRUE(contains(user_error([&] { import_hugging_face(out_, dir_ / "third"); }),
                       *names.begin() + " is missing"));
}

TEST_F(Converts, TiedModelsHaveNoHead) {
  write_config({{"tie_word_embeddings", true}});
  std::vector<TensorSpec> specs = two_;
  specs.push_back({"lm_head.weight", Dtype::kBF16, {5, 3}});
  write_hf("model.safetensors", specs);
  import_hugging_face(hf_, step_, llama);
  EXPECT_EQ(read_manifest(step_).tensors.size(), 2u);
  consolidate(step_, out_, exporting(llama));
  EXPECT_EQ(data_of(out_ / "model.safetensors", "lm_head.weight"), "no such tensor");
  EXPECT_EQ(parse_json(slurp(out_ / "config.json"), "")["tie_word_embeddings"], true);

  fs::remove_all(step_);
  specs.back().shape = {3, 5};  // not the embedding
  write_hf("model.safetensors", specs);
  EXPECT_TRUE(contains(import_error(), "lm_head.weight"));
}

// As GPT-2's files are: one matrix for three of ours, stored [in, out], and names without their
// prefix.
TEST_F(Converts, JoinedAndTransposedTensorsThereAndBackBitForBit) {
  const auto gpt = [](const json&) {
    HfModel model;
    model.tensors.tensors = {{"t.attn.weight", {"t.q.weight", "t.k.weight"}, true},
                             {"t.attn.bias", {"t.q.bias", "t.k.bias"}, false}};
    model.tensors.base_prefix = "t.";
    model.tensors.ignored = {"attn.mask"};
    model.parameters = {{"t.q.weight", {4, 3}},
                        {"t.k.weight", {2, 3}},
                        {"t.q.bias", {4}},
                        {"t.k.bias", {2}},
                        {"t.w.weight", {2, 3}}};
    return model;
  };
  write_config();
  const std::vector<TensorSpec> specs{{"attn.weight", Dtype::kBF16, {3, 6}},
                                      {"attn.bias", Dtype::kBF16, {6}},
                                      {"attn.mask", Dtype::kI64, {1}},
                                      {"w.weight", Dtype::kBF16, {2, 3}}};
  write_hf("model.safetensors", specs);
  const std::vector<std::string> carried = {
      "tokenizer.json", "tokenizer.model.v3",    "tekken.json",
      "spiece.model",   "processor_config.json", "additional_chat_templates/tools.jinja"};
  fs::create_directory(hf_ / "additional_chat_templates");
  for (const std::string& name : carried) spit(hf_ / name, "of " + name);
  spit(hf_ / "secret.txt", "not carried");
  import_hugging_face(hf_, step_, gpt);
  CheckpointReader reader(step_);
  std::vector<float> k;
  reader.stream("t.k.weight", kStateParam, Dtype::kF32, [&](const std::byte* data, int64_t bytes) {
    const auto* values = reinterpret_cast<const float*>(data);
    k.insert(k.end(), values, values + bytes / 4);
  });
  const std::string stored = data_of(hf_ / "model.safetensors", "attn.weight");
  const auto value = [&](size_t row, size_t column) {  // of the stored [3, 6]
    uint16_t half = 0;
    std::memcpy(&half, stored.data() + 2 * (row * 6 + column), 2);
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    float result = 0;
    std::memcpy(&result, &bits, 4);
    return result;
  };
  const std::vector<float> expected{value(0, 4), value(1, 4), value(2, 4),
                                    value(0, 5), value(1, 5), value(2, 5)};
  EXPECT_EQ(k, expected);

  ConsolidateOptions options = exporting(gpt);
  options.dtype = Dtype::kBF16;
  consolidate(step_, out_, options);
  for (const char* name : {"attn.weight", "attn.bias", "w.weight"})
    EXPECT_EQ(data_of(out_ / "model.safetensors", std::string("t.") + name),
              data_of(hf_ / "model.safetensors", name))
        << name;
  EXPECT_EQ(data_of(out_ / "model.safetensors", "t.q.weight"), "no such tensor");
  for (const std::string& name : carried) EXPECT_EQ(slurp(out_ / name), "of " + name);
  EXPECT_FALSE(fs::exists(out_ / "secret.txt"));

  fs::remove_all(step_);
  std::vector<TensorSpec> wrong = specs;
  wrong[0].shape = {6, 3};
  write_hf("model.safetensors", wrong);
  const std::string message = user_error([&] { import_hugging_face(hf_, step_, gpt); });
  EXPECT_TRUE(
      contains(message, "'t.attn.weight' has the shape [6, 3]; config.json makes it [3, 6]"))
      << message;
}

TEST_F(Converts, RotaryBuffersAreLeftOutAndOtherTypesRefused) {
  write_config();
  std::vector<TensorSpec> specs = two_;
  specs.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", Dtype::kF32, {4}});
  write_hf("model.safetensors", specs);
  import_hugging_face(hf_, step_, llama);
  EXPECT_EQ(read_manifest(step_).tensors.size(), 2u);
  fs::remove_all(step_);
  specs.push_back({"model.qzeros", Dtype::kI64, {4}});
  write_hf("model.safetensors", specs);
  EXPECT_TRUE(contains(import_error(), "'model.qzeros' is I64"));
}

// Known fault N11: what fp16 cannot hold left as infinity, without a word.
TEST_F(Converts, ValuesBeyondTheRangeOfTheDtypeAreRefusedByName) {
  write_config();
  ConsolidateOptions options;
  options.dtype = Dtype::kF16;
  write_hf("model.safetensors", {{"a", Dtype::kF32, {1}}}, 65504.0f);
  import_hugging_face(hf_, step_, llama);
  consolidate(step_, out_, options);
  EXPECT_EQ(data_of(out_ / "model.safetensors", "a"), "\xff\x7b");  // the largest half

  const auto export_error = [&](const std::vector<TensorSpec>& specs, float start) {
    fs::remove_all(step_);
    fs::remove_all(out_);
    write_hf("model.safetensors", specs, start);
    import_hugging_face(hf_, step_, llama);
    const std::string message = user_error([&] { consolidate(step_, out_, options); });
    EXPECT_FALSE(fs::exists(out_));
    EXPECT_EQ(names_with(".partial"), 0);
    return message;
  };
  EXPECT_TRUE(contains(export_error({{"lm_head.weight", Dtype::kF32, {1}}}, 70000.0f),
                       "tensor 'lm_head.weight', state 'param': 1 of 1 values is beyond the range "
                       "of F16, which ends at 65504; choose a dtype that holds them"));
  // Those that round down to 65504 pass: 65520 is the first that does not.
  EXPECT_TRUE(contains(export_error({{"w", Dtype::kF32, {3, 6}}}, 65504.0f), "2 of 18 values are"));
  options.dtype = Dtype::kBF16;
  EXPECT_TRUE(contains(export_error({{"w", Dtype::kF32, {1}}}, 3.4e38f),
                       "1 of 1 values is beyond the range"
                       " of BF16"));
  fs::remove_all(step_);
  const double huge[] = {1e300, 1.0};
  SafetensorsWriter writer(hf_ / "model.safetensors", {{"f64", Dtype::kF64, {2}}}, {});
  writer.append(huge, sizeof huge);
  writer.finish();
  EXPECT_TRUE(contains(import_error(), "tensor 'f64': 1 of 2 values is beyond the range of F32"));
}

TEST_F(Converts, FoldersThatDoNotAgreeWithThemselves) {
  const fs::path index = hf_ / "model.safetensors.index.json";
  const auto map = [&](const std::string& entries) {
    spit(index, "{\"metadata\":{\"total_size\":36},\"weight_map\":{" + entries + "}}");
  };
  const std::string embed = "\"model.embed_tokens.weight\":", norm = "\"model.norm.weight\":";

  EXPECT_TRUE(contains(import_error(), "config.json"));
  write_config();
  EXPECT_TRUE(contains(import_error(), "no *.safetensors"));
  spit(hf_ / "pytorch_model.bin", "PK");
  EXPECT_TRUE(contains(import_error(), "safe_serialization=True"));

  write_hf("a.safetensors", two_);
  map(embed + "\"a.safetensors\"," + norm + "\"b.safetensors\"");
  EXPECT_TRUE(contains(import_error(), "b.safetensors is missing"));
  write_hf("b.safetensors", {{"other", Dtype::kF32, {1}}});
  EXPECT_TRUE(contains(import_error(), "said to be in b.safetensors"));
  map(embed + "\"a.safetensors\"");
  EXPECT_TRUE(contains(import_error(), "'model.norm.weight' of a.safetensors is not listed"));
  map(embed + "\"a.safetensors\"," + norm + "\"a.safetensors\",\"ghost\":\"a.safetensors\"");
  EXPECT_TRUE(contains(import_error(), "tensor 'ghost' is said to be in a.safetensors"));
  for (const char* name : {"../a.safetensors", "/etc/passwd", "sub/a.safetensors", "..", ""}) {
    map(embed + "\"" + name + "\"");
    EXPECT_TRUE(contains(import_error(), "plain file name")) << name;
  }
  map(embed + "3");
  EXPECT_TRUE(contains(import_error(), "plain file name"));
  map("");
  EXPECT_TRUE(contains(import_error(), "weight_map is empty"));
  spit(index, "{\"weight_map\": [");
  EXPECT_TRUE(contains(import_error(), "index.json: not valid JSON"));
  spit(index, "{}");
  EXPECT_TRUE(contains(import_error(), "weight_map"));

  fs::remove(index);
  write_hf("b.safetensors", two_);
  EXPECT_TRUE(contains(import_error(), "both in a.safetensors and in b.safetensors"));
  fs::remove(hf_ / "b.safetensors");
  fs::resize_file(hf_ / "a.safetensors", fs::file_size(hf_ / "a.safetensors") - 1);
  EXPECT_TRUE(contains(import_error(), "a.safetensors"));
  spit(hf_ / "config.json", "{");
  EXPECT_TRUE(contains(import_error(), "config.json: not valid JSON"));
}

// transformers takes model.safetensors where an index is there too.
TEST_F(Converts, OfAFileAndAnIndexTheFileIsRead) {
  write_config();
  write_hf("model.safetensors", two_, 1);
  write_hf("other.safetensors", two_, 7);
  spit(hf_ / "model.safetensors.index.json",
       R"({"weight_map":{"model.embed_tokens.weight":"other.safetensors",)"
       R"("model.norm.weight":"other.safetensors"}})");
  const auto imported_first = [&] {
    fs::remove_all(step_);
    notes_ = import_hugging_face(hf_, step_, llama);
    fs::remove_all(out_);
    ConsolidateOptions options;
    options.dtype = Dtype::kBF16;
    consolidate(step_, out_, options);
    return data_of(out_ / "model.safetensors", "model.norm.weight");
  };
  EXPECT_EQ(imported_first(), data_of(hf_ / "model.safetensors", "model.norm.weight"));
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_TRUE(contains(notes_[0], "model.safetensors, which is read, and model.safetensors.index"));
  // A name in config.json comes before either, and is not handed on: an export has its own.
  write_config({{"transformers_weights", "other.safetensors"}});
  EXPECT_EQ(imported_first(), data_of(hf_ / "other.safetensors", "model.norm.weight"));
  EXPECT_FALSE(parse_json(slurp(out_ / "config.json"), "").contains("transformers_weights"));
  write_config({{"transformers_weights", "model.safetensors.index.json"}});
  EXPECT_EQ(imported_first(), data_of(hf_ / "other.safetensors", "model.norm.weight"));
  fs::remove_all(step_);
  for (const char* name : {"../other.safetensors", "other.bin", ""}) {
    write_config({{"transformers_weights", name}});
    EXPECT_TRUE(contains(import_error(), "config.json: transformers_weights: ")) << name;
  }
  write_config();
  fs::remove(hf_ / "model.safetensors");
  EXPECT_EQ(imported_first(), data_of(hf_ / "other.safetensors", "model.norm.weight"));
  EXPECT_TRUE(notes_.empty());
}

// Where they are, how often and of which type does not matter.
TEST_F(Converts, IgnoredTensorsMayBeAnywhere) {
  write_config({{"tie_word_embeddings", true}});
  const std::string buffer = "model.layers.0.self_attn.rotary_emb.inv_freq";
  write_hf("a.safetensors", {two_[0], {buffer, Dtype::kI64, {4}}});
  write_hf("b.safetensors",
           {two_[1], {buffer, Dtype::kI64, {4}}, {"lm_head.weight", Dtype::kBF16, {5, 3}}});
  import_hugging_face(hf_, step_, llama);
  EXPECT_EQ(read_manifest(step_).tensors.size(), 2u);
  fs::remove_all(step_);
  // An index that leaves them out, and one that lists those that are not there.
  const std::string map = R"({"weight_map":{"model.embed_tokens.weight":"a.safetensors",)"
                          R"("model.norm.weight":"b.safetensors")";
  spit(hf_ / "model.safetensors.index.json", map + "}}");
  import_hugging_face(hf_, step_, llama);
  EXPECT_EQ(read_manifest(step_).tensors.size(), 2u);
  fs::remove_all(step_);
  write_hf("a.safetensors", {two_[0]});
  write_hf("b.safetensors", {two_[1]});
  spit(hf_ / "model.safetensors.index.json",
       map + ",\"" + buffer + R"(":"a.safetensors","lm_head.weight":"b.safetensors"}})");
  import_hugging_face(hf_, step_, llama);
  EXPECT_EQ(read_manifest(step_).tensors.size(), 2u);
}

// Code that a folder brings is not run: the model is transformers' own. It comes along, as a
// tokenizer may need it, and what is named without being there is not named in the export.
TEST_F(Converts, CodeComesAlongOrIsNotNamed) {
  const json map = {{"AutoModelForCausalLM", "modeling_x.XForCausalLM"},
                    {"AutoTokenizer", json::array({"tokenization_x.X", nullptr})},
                    {"AutoConfig", "owner/name--configuration_x.XConfig"}};
  write_config({{"auto_map", map},
                {"architectures", {"LlamaModel"}},
                {"custom_pipelines", {{"x", {{"impl", "pipeline.X"}}}}}});
  write_hf("model.safetensors", two_);
  spit(hf_ / "tokenization_x.py", "code");
  const auto notes = import_hugging_face(hf_, step_, llama);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(contains(notes[0], "config.json names code of its own (auto_map), which is not run"));
  consolidate(step_, out_, exporting(llama));
  EXPECT_EQ(slurp(out_ / "tokenization_x.py"), "code");
  const json config = parse_json(slurp(out_ / "config.json"), "");
  EXPECT_EQ(config["auto_map"],
            (json{{"AutoTokenizer", map["AutoTokenizer"]}, {"AutoConfig", map["AutoConfig"]}}));
  EXPECT_FALSE(config.contains("custom_pipelines"));
  // The class is that of the weights that lie beside it.
  EXPECT_EQ(config["architectures"], json::array({"LlamaForCausalLM"}));
}

// What keeps a source from being read is named, with its reason, as the user's to mend.
TEST_F(Converts, ASourceThatCannotBeRead) {
  write_config();
  write_hf("model.safetensors", two_);
  spit(hf_ / "tokenizer.json", "{}");
  fs::permissions(dir_, fs::perms::all);
  const auto refused = [&](const fs::path& path) {
    fs::permissions(path, fs::perms::none);
    std::string message;
    {
      const AsNobody nobody;
      message = user_error([&] { import_hugging_face(hf_, step_, llama); });
    }
    fs::permissions(path, fs::perms::all);
    EXPECT_FALSE(fs::exists(step_));
    return message;
  };
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"}) {
    const std::string message = refused(hf_ / name);
    EXPECT_TRUE(contains(message, (hf_ / name).string()));
    EXPECT_TRUE(contains(message, "Permission denied"));
  }
  for (const fs::path& folder : {hf_, dir_}) {
    const std::string message = refused(folder);
    EXPECT_TRUE(contains(message, hf_.string()));
    EXPECT_TRUE(contains(message, "Permission denied"));
  }
  fs::create_symlink("loop", dir_ / "loop");
  const std::string message = user_error([&] { import_hugging_face(dir_ / "loop", step_, llama); });
  EXPECT_TRUE(contains(message, "loop: Too many levels of symbolic links"));
}

TEST_F(Converts, OutputAppearsWholeOrNotAtAll) {
  const fs::path step = save_on_mesh(dir_, 1, 2, 1, {kStateParam});
  fs::create_directory(out_);
  spit(out_ / "mine", "keep");
  EXPECT_TRUE(contains(user_error([&] { consolidate(step, out_, {}); }), "exists already"));
  EXPECT_EQ(slurp(out_ / "mine"), "keep");
  fs::remove(out_ / "mine");
  consolidate(step, out_, {});  // an empty folder is taken

  std::string text = slurp(step / rank_file_name(1));
  text.back() ^= 1;
  spit(step / rank_file_name(1), text);
  const fs::path other = dir_ / "other";
  EXPECT_TRUE(contains(user_error([&] { consolidate(step, other, {}); }), "checksum"));
  EXPECT_FALSE(fs::exists(other));
  EXPECT_EQ(names_with(".partial"), 0);
  EXPECT_TRUE(contains(user_error([&] { consolidate(dir_ / "none", other, {}); }), "none"));
}

// Names beside the output belong to the user, whatever they are; also those that ours would have.
TEST_F(Converts, NothingBesideTheOutputIsTouched) {
  const fs::path step = save_on_mesh(dir_, 1, 2, 1, {kStateParam});
  const std::string ours = fmt::format("{}.partial-{}", out_.string(), getpid());
  const std::vector<fs::path> mine = {out_.string() + ".partial", ours, ours + ".2"};
  for (const fs::path& path : mine) {
    fs::create_directory(path);
    spit(path / "mine", "keep");
  }
  consolidate(step, out_, {});
  EXPECT_NE(data_of(out_ / "model.safetensors", "norm"), "no such tensor");
  for (const fs::path& path : mine) {
    EXPECT_EQ(slurp(path / "mine"), "keep");
    EXPECT_EQ(std::distance(fs::directory_iterator(path), fs::directory_iterator()), 1);
  }
  EXPECT_EQ(names_with(".partial"), 3);
}

TEST_F(Converts, InspectSaysWhatIsThere) {
  const fs::path step = save_on_mesh(dir_, 7, 2, 2, kAllStates);
  std::ostringstream out;
  inspect(step, out);
  for (const char* part :
       {"step        7\n", "samples     56\n", "dp_shard 1", "rank-00003.safetensors",
        "param F32, exp_avg F32, exp_avg_sq F32", "conv", "[3, 4, 5]"})
    EXPECT_TRUE(contains(out.str(), part));
}

}  // namespace
}  // namespace tessera::testing
