// Runs that start from a Hugging Face folder as it is: the same bits as from an import of it, on
// every mesh, and all else that a start from a step folder has.
#include <gtest/gtest.h>

#include <fstream>

#include "base/files/files.h"
#include "checkpoint/huggingface/hf_files.h"
#include "data/pack.h"
#include "models/registry.h"
#include "safetensors/reader.h"
#include "safetensors/writer.h"
#include "support/convert_model.h"
#include "support/error_of.h"
#include "support/golden_models.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

fs::path golden(const std::string& model) {
  return fs::path(TESSERA_SOURCE_DIR) / "tests/golden/models" / model;
}

fs::path step_dir(const Config& config, int64_t step) {
  return fs::path(config.run.dir) / "checkpoints" / step_dir_name(step);
}

std::string log_of(const Config& config) {
  return read_small_file(fs::path(config.run.dir) / "logs/train.log", 1 << 20);
}

// One step that changes no weight, of the model of a Hugging Face folder, from `start`.
Config config_from(const TemporaryFolder& folder, const std::string& name, const fs::path& hf,
                   const fs::path& start) {
  const fs::path text = folder / "fifty.txt";  // the golden models have 50 ids
  if (!fs::exists(text)) {
    std::ofstream out(text, std::ios::binary);
    for (int64_t i = 0; i < 100 * 16 + 1; ++i) out.put(static_cast<char>((7 * i + 3) % 50));
    out.close();
    pack_bytes({text}, folder / "fifty", {.any_bytes = true});
  }
  Config config = tiny_config(folder, name);
  config.data.train = {folder / "fifty"};
  config.model = read_hf_model(hf / "config.json");
  config.checkpoint.init_from = start;
  config.training.steps = 1;
  config.optimizer.lr = 1e-30;
  config.optimizer.weight_decay = 0.0;
  config.schedule.warmup_steps = 0;
  return config;
}

// A copy of a golden model's folder, without what the tests compare with.
fs::path copy_of(const TemporaryFolder& folder, const std::string& model) {
  const fs::path copy = folder / ("copy-" + model);
  fs::create_directories(copy);
  for (const char* name : {"config.json", "model.safetensors"})
    fs::copy_file(golden(model) / name, copy / name);
  return copy;
}

// Writes the weights of a folder anew, with what `change` makes of the list of tensors.
void rewrite(
    const fs::path& hf,
    const std::function<void(std::vector<TensorSpec>&, std::vector<std::string>&)>& change) {
  const fs::path path = hf / "model.safetensors";
  std::vector<TensorSpec> specs;
  std::vector<std::string> data;
  {
    const File file = File::open(path);
    const SafetensorsHeader header = read_safetensors_header(file);
    for (const TensorEntry& entry : header.entries) {
      specs.push_back({entry.name, entry.dtype, entry.shape});
      data.emplace_back(static_cast<size_t>(entry.end - entry.begin), '\0');
      file.read_at(data.back().data(), entry.end - entry.begin, header.data_begin + entry.begin);
    }
  }
  change(specs, data);
  SafetensorsWriter writer(path, specs, {{"format", "pt"}});
  for (const std::string& bytes : data)
    writer.append(bytes.data(), static_cast<int64_t>(bytes.size()));
  writer.finish();
}

// The states after the step are those of a start from an import: weights, and with them gradients.
void expect_as_imported(const TemporaryFolder& folder, const fs::path& hf) {
  const fs::path imported = folder / "imported";
  import_folder(hf, imported);
  const Config reference = config_from(folder, "reference", hf, imported);
  const TinyRun wanted = run(reference);
  const auto weights = read_states(reference, 1);
  int number = 0;
  for (const auto& [replicas, shards, tp] :
       {std::tuple{1, 1, 1}, {1, 2, 2}, {2, 2, 1}, {1, 3, 1}, {1, 1, 2}}) {
    for (const int zero : {0, 3}) {
      SCOPED_TRACE(fmt::format("{} x {} x {}, zero {}", replicas, shards, tp, zero));
      std::map<std::string, std::vector<double>> states[2];
      TinyRun runs[2];
      for (const bool direct : {false, true}) {
        Config config =
            config_from(folder, fmt::format("run-{}", number++), hf, direct ? hf : imported);
        config.parallel.dp_replicate = replicas;
        config.parallel.dp_shard = shards;
        config.parallel.tp = tp;
        config.parallel.zero = zero;
        runs[direct] = run(config);
        states[direct] = read_states(config, 1);
      }
      expect_identical(runs[true], runs[false]);
      EXPECT_EQ(states[true], states[false]);
      for (const auto& [name, values] : weights)
        if (name.ends_with("/param") && states[true].at(name) != values)
          ADD_FAILURE() << name << " is not as one rank has it";
    }
  }
}

TEST(InitFromHuggingFace, LlamaIsAsImportedOnEveryMesh) {
  const TemporaryFolder folder;
  expect_as_imported(folder, golden("llama"));
}

// Its matrices are stored transposed, q, k and v in one, and the head is the embedding.
TEST(InitFromHuggingFace, Gpt2IsAsImportedOnEveryMesh) {
  const TemporaryFolder folder;
  expect_as_imported(folder, golden("gpt2"));
}

// Halves in several files with an index, with q, k and v, gate and up, in one matrix each.
TEST(InitFromHuggingFace, HalvesInSeveralFilesAreAsImportedOnEveryMesh) {
  const TemporaryFolder folder;
  import_folder(golden("phi3"), folder / "step");
  export_step(folder / "step", folder / "hf", {.dtype = Dtype::kBF16, .max_shard_bytes = 9000});
  ASSERT_TRUE(fs::exists(folder / "hf/model.safetensors.index.json"));
  ASSERT_FALSE(fs::exists(folder / "hf/model.safetensors"));
  expect_as_imported(folder, folder / "hf");
}

// What an import would have carried along, the run carries.
TEST(InitFromHuggingFace, FilesAndConfigurationComeAlong) {
  const TemporaryFolder folder;
  const fs::path hf = copy_of(folder, "llama");
  json described = json::parse(read_small_file(hf / "config.json", 1 << 20));
  described["eos_token_id"] = 7;
  std::ofstream(hf / "config.json") << described;
  std::ofstream(hf / "tokenizer.json") << "words";
  std::ofstream(hf / "notes.txt") << "not carried";
  Config config = config_from(folder, "run", hf, hf);
  config.model.set_source(nullptr);  // as if the model's keys stood in the YAML
  run(config);
  const fs::path carried = fs::path(config.run.dir) / kHfFilesFolder;
  EXPECT_EQ(read_small_file(carried / "tokenizer.json", 100), "words");
  EXPECT_FALSE(fs::exists(carried / "notes.txt"));
  EXPECT_FALSE(fs::exists(carried / "model.safetensors"));
  EXPECT_NE(log_of(config).find("starting at step 0 with the weights of " + hf.string()),
            std::string::npos);
  EXPECT_NE(log_of(config).find("comes with the tokenizer in " + hf.string()), std::string::npos)
      << log_of(config);
  export_step(step_dir(config, 1), folder / "out");
  EXPECT_EQ(read_small_file(folder / "out/tokenizer.json", 100), "words");
  const json exported = json::parse(read_small_file(folder / "out/config.json", 1 << 20));
  EXPECT_EQ(exported.at("eos_token_id"), 7);
}

TEST(InitFromHuggingFace, ARunGoesOnAndOtherWeightsAreRefused) {
  const TemporaryFolder folder;
  const fs::path hf = copy_of(folder, "llama");
  Config config = config_from(folder, "run", hf, hf);
  config.training.steps = 4;
  config.training.stop_after = 2;
  run(config);
  const Manifest manifest = read_manifest(step_dir(config, 2));
  EXPECT_EQ(manifest.run.at("starts")[0].at("key"), "checkpoint.init_from");
  EXPECT_TRUE(manifest.run.at("starts")[0].at("step").is_null());
  fs::rename(hf, folder / "moved");  // the same weights, wherever they lie
  config.checkpoint.init_from = folder / "moved";
  config.training.stop_after = 3;
  EXPECT_EQ(run(config).steps.size(), 3U);
  EXPECT_EQ(log_of(config).find("warning"), std::string::npos) << log_of(config);

  // Other weights, and a step folder, even one with these weights.
  const fs::path other = copy_of(folder, "llama");
  rewrite(other, [](auto&, auto& data) {
    for (char& byte : data[0]) byte = static_cast<char>(byte ^ 1);
  });
  import_folder(golden("llama"), folder / "step");
  for (const fs::path& start : {other, folder / "step"}) {
    config.checkpoint.init_from = start;
    const std::string error = error_of([&] { run(config); });
    EXPECT_NE(error.find("a run that began with checkpoint.init_from at the weights of a Hugging "
                         "Face folder, "),
              std::string::npos)
        << error;
  }
  config.checkpoint.init_from = folder / "gone";
  config.training.stop_after.reset();
  EXPECT_EQ(run(config).steps.size(), 4U);
  EXPECT_NE(log_of(config).find("without knowing whether that run began with the weights"),
            std::string::npos);
}

TEST(InitFromHuggingFace, WhatDoesNotFitIsNamedBeforeAnythingIsAllocated) {
  const TemporaryFolder folder;
  const fs::path hf = copy_of(folder, "llama");
  Config config = config_from(folder, "run", hf, hf);
  config.parallel.dp_shard = 2;
  const auto refused = [&] {
    const std::string error = error_of([&] { run(config); });
    EXPECT_EQ(log_of(config).find("memory of"), std::string::npos) << "the model was made first";
    return error;
  };
  sizes(config).rope_theta = 5.0;
  EXPECT_NE(refused().find("model.rope_theta: 10000.0 there, 5.0 in the configuration"),
            std::string::npos);
  sizes(config).rope_theta = 10000.0;
  const std::string norm = "model.norm.weight";
  rewrite(hf, [&](auto& specs, auto&) {
    for (TensorSpec& spec : specs)
      if (spec.name == norm) spec.name = "model.last_norm.weight";
  });
  const std::string missing = refused();
  EXPECT_NE(missing.find("1 missing: " + norm + "; 1 unexpected: model.last_norm.weight"),
            std::string::npos)
      << missing;
  rewrite(hf, [&](auto& specs, auto&) {
    for (TensorSpec& spec : specs)
      if (spec.name == "model.last_norm.weight") {
        spec.name = norm;
        spec.shape = {4, 8};
      }
  });
  EXPECT_NE(refused().find(norm + " is [4, 8] in the checkpoint and [32] in the model"),
            std::string::npos);
  fs::remove(hf / "model.safetensors");
  EXPECT_NE(refused().find("no *.safetensors file"), std::string::npos);
  fs::remove(hf / "config.json");
  EXPECT_NE(refused().find("neither the manifest.json of a step folder nor the config.json"),
            std::string::npos);
}

TEST(InitFromHuggingFace, WhatIsThereBesidesIsNamed) {
  const TemporaryFolder folder;
  const fs::path hf = copy_of(folder, "llama");
  rewrite(hf, [](auto& specs, auto& data) {
    specs.push_back({"value_head.weight", Dtype::kF32, {2}});
    data.emplace_back(8, '\0');
  });
  Config config = config_from(folder, "run", hf, hf);
  run(config);
  EXPECT_NE(log_of(config).find("holds a tensor that the model does not have, left out: "
                                "value_head.weight"),
            std::string::npos)
      << log_of(config);
  Config next = config_from(folder, "next", hf, step_dir(config, 1));
  run(next);
  EXPECT_NE(log_of(next).find("also holds exp_avg, exp_avg_sq and the progress of step 1, which "
                              "are left there"),
            std::string::npos)
      << log_of(next);
}

// A head that should be the embedding and is not, found by the rank that reads that part of it.
TEST(InitFromHuggingFace, ATiedHeadThatDiffersIsAnErrorOnAllRanks) {
  const TemporaryFolder folder;
  const fs::path hf = copy_of(folder, "llama3-tied");
  rewrite(hf, [](auto& specs, auto& data) {
    for (size_t i = 0; i < specs.size(); ++i)
      if (specs[i].name == "model.embed_tokens.weight") {
        specs.push_back({"lm_head.weight", specs[i].dtype, specs[i].shape});
        data.push_back(data[i]);
        break;
      }
  });
  Config config = config_from(folder, "run", hf, hf);
  config.parallel.dp_shard = 3;
  run(config);
  rewrite(hf, [](auto&, auto& data) {
    data.back().back() = static_cast<char>(data.back().back() ^ 1);
  });
  config.run.dir = folder / "other";
  const std::string error = error_of([&] { run(config); });
  EXPECT_NE(error.find("is not the embedding model.embed_tokens.weight"), std::string::npos)
      << error;
  EXPECT_NE(error.find("on rank 2"), std::string::npos) << error;
}

}  // namespace
}  // namespace tessera
