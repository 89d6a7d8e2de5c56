// The Hugging Face files of every model in other forms than transformers' own saves of them: in
// halves, in several files, under other names, and with parts missing.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "base/box.h"
#include "base/error.h"
#include "base/files/files.h"
#include "checkpoint/huggingface/consolidate.h"
#include "models/registry.h"
#include "safetensors/reader.h"
#include "safetensors/writer.h"
#include "support/convert_model.h"
#include "support/error_of.h"
#include "support/golden_models.h"
#include "support/read_tensors.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Dtype and bytes of every tensor of a file.
std::map<std::string, std::pair<Dtype, std::string>> contents(const fs::path& path) {
  const File file = File::open(path);
  const SafetensorsHeader header = read_safetensors_header(file);
  std::map<std::string, std::pair<Dtype, std::string>> result;
  for (const TensorEntry& entry : header.entries) {
    std::string bytes(static_cast<size_t>(entry.end - entry.begin), '\0');
    file.read_at(bytes.data(), entry.end - entry.begin, header.data_begin + entry.begin);
    result[entry.name] = {entry.dtype, std::move(bytes)};
  }
  return result;
}

class HfFiles : public ::testing::TestWithParam<GoldenModel> {
 protected:
  // hf/ with config.json, `tensors` of the golden file as `dtype`, and zeros of `more`.
  void write(at::ScalarType type, Dtype dtype, size_t tensors,
             const std::vector<TensorSpec>& more = {}) {
    const fs::path golden = GetParam().path();
    auto config = nlohmann::json::parse(read_small_file(golden / "config.json", 1 << 20));
    config["model_type"] = GetParam().type;
    fs::create_directories(hf_);
    std::ofstream(hf_ / "config.json") << config;
    std::vector<TensorSpec> specs;
    std::vector<at::Tensor> data;
    for (const auto& [name, tensor] : golden_tensors()) {
      if (specs.size() == tensors) break;
      specs.push_back({name, dtype, tensor.sizes().vec()});
      data.push_back(tensor.to(type).contiguous());
    }
    for (const TensorSpec& spec : more) {
      specs.push_back(spec);
      data.push_back(at::zeros(whole_box(spec.shape).numel() * dtype_size(spec.dtype), at::kByte));
    }
    SafetensorsWriter writer(hf_ / "model.safetensors", specs, {{"format", "pt"}});
    for (const at::Tensor& tensor : data)
      writer.append(tensor.data_ptr(), static_cast<int64_t>(tensor.nbytes()));
    writer.finish();
  }
  // The same as fp32 under the names that `rename` gives; an empty one leaves the tensor out.
  void write_renamed(const std::function<std::string(const std::string&)>& rename) {
    write(at::kFloat, Dtype::kF32, SIZE_MAX);
    std::vector<TensorSpec> specs;
    std::vector<at::Tensor> data;
    for (const auto& [name, tensor] : golden_tensors())
      if (const std::string other = rename(name); !other.empty()) {
        specs.push_back({other, Dtype::kF32, tensor.sizes().vec()});
        data.push_back(tensor.contiguous());
      }
    SafetensorsWriter writer(hf_ / "model.safetensors", specs, {});
    for (const at::Tensor& tensor : data)
      writer.append(tensor.data_ptr(), static_cast<int64_t>(tensor.nbytes()));
    writer.finish();
  }
  // Imports and exports: the golden file's tensors, bit for bit, by their own names.
  void expect_golden(const std::string& label) {
    SCOPED_TRACE(label);
    fs::remove_all(folder_ / "step");
    fs::remove_all(folder_ / "out");
    ASSERT_EQ(error_of([&] { import_folder(hf_, folder_ / "step"); }), "no error");
    export_step(folder_ / "step", folder_ / "out");
    EXPECT_EQ(contents(folder_ / "out/model.safetensors"),
              contents(GetParam().path() / GetParam().weights));
  }
  HfTensors tensors() const {
    return recognize(nlohmann::json::parse(read_small_file(hf_ / "config.json", 1 << 20))).tensors;
  }
  static std::map<std::string, at::Tensor> golden_tensors() {
    return read_tensors(GetParam().path() / GetParam().weights);
  }
  std::string import_error() {
    const std::string message = error_of([&] { import_folder(hf_, folder_ / "refused"); });
    EXPECT_FALSE(fs::exists(folder_ / "refused"));
    return message;
  }

  const TemporaryFolder folder_;
  const fs::path hf_ = folder_ / "hf";
};

// Known fault H08: values changed by casts. Also of matrices that are joined and transposed.
TEST_P(HfFiles, OfHalvesComeBackBitForBit) {
  for (const auto& [type, dtype, name] :
       {std::tuple{at::kBFloat16, Dtype::kBF16, "bfloat16"}, {at::kHalf, Dtype::kF16, "float16"}}) {
    write(type, dtype, SIZE_MAX);
    const fs::path step = folder_ / (std::string(name) + "-step"), out = folder_ / name;
    import_folder(hf_, step);
    export_step(step, out, {.dtype = dtype});
    EXPECT_EQ(contents(out / "model.safetensors"), contents(hf_ / "model.safetensors"));
    const auto config = nlohmann::json::parse(read_small_file(out / "config.json", 1 << 20));
    EXPECT_EQ(config.at("torch_dtype"), name);
  }
}

// Known fault H10: weights of a file that is not there stayed as memory was.
TEST_P(HfFiles, AMissingFileIsNamed) {
  write(at::kFloat, Dtype::kF32, SIZE_MAX);
  import_folder(hf_, folder_ / "step");
  fs::remove_all(hf_);
  int64_t bytes = 0;
  for (const auto& [name, tensor] : golden_tensors())
    bytes += static_cast<int64_t>(tensor.nbytes());
  ConsolidateOptions options;
  options.max_shard_bytes = bytes * 3 / 5;
  export_step(folder_ / "step", hf_, options);
  const fs::path second = hf_ / "model-00002-of-00002.safetensors";
  ASSERT_TRUE(fs::exists(second));
  import_folder(hf_, folder_ / "whole");  // both
  fs::remove(second);
  const std::string message = second.string() + " is missing";
  EXPECT_NE(import_error().find(message), std::string::npos) << import_error();
  fs::remove(hf_ / "model.safetensors.index.json");  // the other file's name says it too
  EXPECT_NE(import_error().find(message), std::string::npos) << import_error();
  fs::rename(hf_ / "model-00001-of-00002.safetensors", hf_ / "model.safetensors");
  EXPECT_NE(import_error().find("missing: "), std::string::npos) << import_error();
}

// Known fault H09: integers cast with the rest. No model here has any; what is none of the model's
// is left out by name, and old files' buffers, which follow from config.json, without a word.
TEST_P(HfFiles, WhatIsNoneOfTheModelsIsNamedAndLeftOut) {
  for (const Dtype dtype : {Dtype::kI64, Dtype::kF32}) {
    write(at::kFloat, Dtype::kF32, SIZE_MAX, {{"embeddings.other", dtype, {16}}});
    const auto notes = import_folder(hf_, folder_ / fmt::format("with-{}", dtype_name(dtype)));
    ASSERT_EQ(notes.size(), 1U);
    EXPECT_NE(notes[0].find("a tensor that the model does not have, left out: embeddings.other"),
              std::string::npos)
        << notes[0];
  }
  const auto config = nlohmann::json::parse(read_small_file(hf_ / "config.json", 1 << 20));
  std::vector<TensorSpec> buffers;
  for (const std::string& end : recognize(config).tensors.ignored)
    buffers.push_back({"layers.0." + end, Dtype::kI64, {4}});
  write(at::kFloat, Dtype::kF32, SIZE_MAX, buffers);
  EXPECT_TRUE(import_folder(hf_, folder_ / "step").empty());
  const auto [last, tensor] = *golden_tensors().rbegin();
  write(at::kFloat, Dtype::kF32, golden_tensors().size() - 1,
        {{last, Dtype::kI64, tensor.sizes().vec()}});
  EXPECT_NE(import_error().find("'" + last + "' is I64; weights must be F32"), std::string::npos)
      << import_error();
}

// torch.compile, FSDP, recomputation and DistributedDataParallel put words into names.
TEST_P(HfFiles, NamesOfWrappedModulesAreThoseOfTheModel) {
  const auto inside = [](std::string name, const std::string& word) {
    for (size_t dot = 0; (dot = name.find('.', dot)) != std::string::npos; dot += word.size() + 1)
      name.insert(dot + 1, word);
    return name;
  };
  for (const std::string word : {"_orig_mod.", "module.", "_fsdp_wrapped_module.",
                                 "module._orig_mod.", "_orig_mod.module."}) {
    write_renamed([&](const std::string& name) { return word + name; });
    expect_golden(word);
  }
  for (const std::string word : {"_checkpoint_wrapped_module.", "_orig_mod.",
                                 "_fsdp_wrapped_module._checkpoint_wrapped_module."}) {
    write_renamed([&](const std::string& name) { return word + inside(name, word); });
    expect_golden(word);
  }
  const std::string first = golden_tensors().begin()->first;
  write(at::kFloat, Dtype::kF32, SIZE_MAX,
        {{"module." + first, Dtype::kF32, golden_tensors().at(first).sizes().vec()}});
  EXPECT_NE(import_error().find("are both the tensor " + first), std::string::npos)
      << import_error();
}

// What the model's class without a head saves: names without its prefix. A head may lie beside, as
// in GPT-2's old files.
TEST_P(HfFiles, AModelWithoutItsHeadIsReadWhereTheHeadIsTheEmbedding) {
  write(at::kFloat, Dtype::kF32, SIZE_MAX);
  const HfTensors names = tensors();
  const auto without_prefix = [&](const std::string& name) {
    return name.starts_with(names.base_prefix) ? name.substr(names.base_prefix.size()) : name;
  };
  const auto body = [&](const std::string& name) {
    return name.starts_with(names.base_prefix) ? without_prefix(name) : "";
  };
  write_renamed(without_prefix);
  expect_golden("whole");
  write_renamed([&](const std::string& name) { return "module." + without_prefix(name); });
  expect_golden("wrapped");
  write_renamed(body);
  if (names.tied) {
    expect_golden("body");
    // Either name of the one matrix does, and both together.
    write_renamed([&](const std::string& name) {
      return name == names.tied->embedding ? names.tied->head : without_prefix(name);
    });
    expect_golden("head for the embedding");
  } else {
    EXPECT_NE(import_error().find("holds a model without its head: names have no '" +
                                  names.base_prefix + "' in front, and there is no " + names.head),
              std::string::npos)
        << import_error();
  }
}

TEST_P(HfFiles, AMissingTensorIsNamed) {
  write(at::kFloat, Dtype::kF32, golden_tensors().size() - 1);
  const std::string last = golden_tensors().rbegin()->first;
  EXPECT_NE(import_error().find("1 missing: " + last), std::string::npos) << import_error();
}

INSTANTIATE_TEST_SUITE_P(Models, HfFiles, ::testing::ValuesIn(kGoldenHfModels),
                         [](const auto& test) { return golden_test_name(test.param.folder); });

}  // namespace
}  // namespace tessera
