#include "checkpoint/huggingface/hf_source.h"

#include "checkpoint/format/elements.h"
#include "checkpoint_testing.h"
#include "safetensors/writer.h"

namespace tessera::testing {
namespace {

using nlohmann::json;

// A tensor of a file; its elements are start, start + 1, ... in order.
struct Stored {
  TensorSpec spec;
  float start = 0;
};

class HfSource : public Scratch {
 protected:
  void SetUp() override {
    fs::create_directory(hf_);
    spit(hf_ / "config.json", config_.dump());
  }
  void write(const std::string& name, const std::vector<Stored>& tensors) const {
    std::vector<TensorSpec> specs;
    for (const Stored& tensor : tensors) specs.push_back(tensor.spec);
    SafetensorsWriter writer(hf_ / name, specs, {{"format", "pt"}});
    for (const auto& [spec, start] : tensors) {
      std::vector<float> values(static_cast<size_t>(whole_box(spec.shape).numel()));
      for (size_t i = 0; i < values.size(); ++i) values[i] = start + static_cast<float>(i);
      std::vector<std::byte> bytes(values.size() * static_cast<size_t>(dtype_size(spec.dtype)));
      if (spec.dtype != Dtype::kI64)
        convert_elements(reinterpret_cast<const std::byte*>(values.data()), Dtype::kF32,
                         bytes.data(), spec.dtype, static_cast<int64_t>(values.size()));
      writer.append(bytes.data(), static_cast<int64_t>(bytes.size()));
    }
    writer.finish();
  }
  HuggingFaceSource open(const HfModel& model) const { return {hf_, config_, model}; }
  std::string error_of(const HfModel& model) const {
    return user_error([&] { HuggingFaceSource source(hf_, config_, model); });
  }

  fs::path hf_ = dir_ / "hf";
  json config_ = {{"model_type", "llama"}};
};

// What the source gives of a slice.
std::vector<float> read(HuggingFaceSource& source, const std::string& tensor,
                        const BoxSlice& slice) {
  std::vector<float> values(static_cast<size_t>(slice.numel()), -1);
  Piece piece;
  piece.tensor = tensor;
  piece.state = kStateParam;
  piece.slice = slice;
  piece.data = reinterpret_cast<std::byte*>(values.data());
  source.read(piece);
  return values;
}

// Any part of matrices that are joined, joined and transposed, or neither, from windows that end
// within a run and that skip long gaps.
TEST_F(HfSource, GivesAnyPartOfAnyTensor) {
  struct Ours {
    std::string name;
    std::vector<int64_t> shape;
    std::function<int64_t(int64_t row, int64_t column)> place;  // in the stored tensor
    float start;
  };
  // Stored: plain [700, 1700]; qkv [90, 40] of 50 + 40 rows; t [60, 30000] of 10000 + 20000 columns
  // (a gap between the columns of one of them is longer than what is read over).
  const std::vector<Ours> ours = {
      {"plain", {700, 1700}, [](int64_t r, int64_t c) { return r * 1700 + c; }, 1},
      {"q", {50, 40}, [](int64_t r, int64_t c) { return r * 40 + c; }, 2},
      {"k", {40, 40}, [](int64_t r, int64_t c) { return (50 + r) * 40 + c; }, 2},
      {"a", {10000, 60}, [](int64_t r, int64_t c) { return c * 30000 + r; }, 3},
      {"b", {20000, 60}, [](int64_t r, int64_t c) { return c * 30000 + 10000 + r; }, 3}};
  HfModel model;
  model.tensors.tensors = {{"qk", {"q", "k"}, false}, {"ab", {"a", "b"}, true}};
  for (const Ours& tensor : ours) model.parameters.push_back({tensor.name, tensor.shape});
  write("model.safetensors", {{{"plain", Dtype::kF32, {700, 1700}}, 1},
                              {{"qk", Dtype::kF32, {90, 40}}, 2},
                              {{"ab", Dtype::kF32, {60, 30000}}, 3}});
  HuggingFaceSource source = open(model);
  uint64_t state = 1;
  const auto random = [&](int64_t end) {  // in [0, end)
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(end));
  };
  for (const Ours& tensor : ours) {
    SCOPED_TRACE(tensor.name);
    for (int trial = 0; trial < 20; ++trial) {
      BoxSlice slice{whole_box(tensor.shape), 0, 0};
      if (trial > 1)
        for (size_t d = 0; d < 2; ++d) {
          slice.box.offset[d] = random(tensor.shape[d]);
          slice.box.shape[d] = 1 + random(tensor.shape[d] - slice.box.offset[d]);
        }
      slice.begin = trial == 0 ? 0 : random(slice.box.numel());
      slice.end = trial == 0 ? slice.box.numel()
                             : slice.begin + random(slice.box.numel() - slice.begin + 1);
      std::vector<float> expected;
      for (int64_t i = slice.begin; i < slice.end; ++i) {
        const int64_t row = slice.box.offset[0] + i / slice.box.shape[1];
        const int64_t column = slice.box.offset[1] + i % slice.box.shape[1];
        expected.push_back(tensor.start + static_cast<float>(tensor.place(row, column)));
      }
      EXPECT_TRUE(read(source, tensor.name, slice) == expected) << "trial " << trial;
    }
  }
}

TEST_F(HfSource, ConvertsWhatIsStored) {
  for (const Dtype dtype : {Dtype::kBF16, Dtype::kF16, Dtype::kF32, Dtype::kF64}) {
    write("model.safetensors", {{{"t.w", dtype, {3, 4}}, 5}, {{"s", dtype, {}}, 9}});
    HfModel model;
    model.tensors.tensors = {{"t.w", {"w"}, true}};
    model.parameters = {{"w", {4, 3}}, {"s", {}}};
    HuggingFaceSource source = open(model);
    EXPECT_EQ(read(source, "s", {whole_box({}), 0, 1}), std::vector<float>{9});
    std::vector<double> values(12);
    Piece piece;
    piece.tensor = "w";
    piece.state = kStateParam;
    piece.slice = {whole_box({4, 3}), 0, 12};
    piece.dtype = Dtype::kF64;
    piece.data = reinterpret_cast<std::byte*>(values.data());
    source.read(piece);
    EXPECT_EQ(values, (std::vector<double>{5, 9, 13, 6, 10, 14, 7, 11, 15, 8, 12, 16}));
  }
}

TEST_F(HfSource, RefusesWhatItHasNot) {
  write("model.safetensors", {{{"w", Dtype::kF32, {4, 3}}, 0}, {{"t", Dtype::kF32, {4, 3}}, 0}});
  HfModel model;
  model.tensors.tensors = {{"t", {"tt"}, true}};
  model.parameters = {{"w", {4, 3}}, {"tt", {3, 4}}};
  HuggingFaceSource source = open(model);
  EXPECT_TRUE(contains(user_error([&] {
                         read(source, "none", {whole_box({1}), 0, 1});
                       }),
                       "no state 'param' of a tensor 'none'"));
  Piece piece;
  piece.tensor = "w";
  piece.state = kStateExpAvg;
  EXPECT_TRUE(contains(user_error([&] { source.read(piece); }), "weights of its model alone"));
  for (const char* name : {"w", "tt"})
    EXPECT_THROW(read(source, name, {Box{{2, 2}, {3, 3}}, 0, 9}), Error) << name;
}

// What the model lacks is named, and so is what it does not have.
TEST_F(HfSource, MissingTensorsAreAnErrorAndOthersANote) {
  HfModel model;
  model.parameters = {{"a", {2}}, {"b", {3}}};
  std::vector<Stored> tensors = {{{"a", Dtype::kF32, {2}}}, {{"bb", Dtype::kF32, {3}}}};
  write("model.safetensors", tensors);
  std::string message = error_of(model);
  EXPECT_TRUE(contains(message, "1 missing: b"));
  EXPECT_TRUE(contains(message, "1 unexpected: bb"));
  tensors.push_back({{"b", Dtype::kF32, {4}}});
  write("model.safetensors", tensors);
  EXPECT_TRUE(contains(error_of(model), "b is [4] in the checkpoint and [3] in the model"));
  tensors.back().spec.shape = {3};
  write("model.safetensors", tensors);
  {
    const HuggingFaceSource source = open(model);
    ASSERT_EQ(source.notes().size(), 1u);
    EXPECT_TRUE(
        contains(source.notes()[0], "holds a tensor that the model does not have, left out: bb"));
  }
  for (int i = 0; i < 6; ++i)  // of whatever type
    tensors.push_back({{"module.x" + std::to_string(i), Dtype::kI64, {1}}});
  write("model.safetensors", tensors);
  const HuggingFaceSource source = open(model);
  ASSERT_EQ(source.notes().size(), 1u);
  EXPECT_TRUE(contains(source.notes()[0], "7 tensors"));
  EXPECT_TRUE(contains(source.notes()[0], "bb, module.x0, module.x1, module.x2, module.x3, ..."));
  EXPECT_EQ(source.parts().size(), 2u);
}

// Each of several readers compares its part of a tied head.
TEST_F(HfSource, ATiedHeadIsComparedInParts) {
  HfModel model;
  model.tensors.tied = {"head", "embed"};
  model.parameters = {{"embed", {10, 3}}};
  write("a.safetensors", {{{"embed", Dtype::kF32, {10, 3}}, 0}});
  write("b.safetensors", {{{"head", Dtype::kF32, {10, 3}}, 0}});
  for (const int parts : {1, 3, 7, 200})
    for (int part = 0; part < parts; ++part) open(model).check_tied_head(part, parts);
  std::string text = slurp(hf_ / "b.safetensors");
  text[text.size() - 2] ^= 1;  // of the last element
  spit(hf_ / "b.safetensors", text);
  for (const int parts : {1, 3, 30}) {
    for (int part = 0; part < parts - 1; ++part) open(model).check_tied_head(part, parts);
    EXPECT_TRUE(contains(user_error([&] { open(model).check_tied_head(parts - 1, parts); }),
                         "head in " + (hf_ / "b.safetensors").string() + " is not the embedding"));
  }
  write("b.safetensors", {{{"head", Dtype::kF32, {3, 10}}, 0}});
  EXPECT_TRUE(contains(user_error([&] { open(model).check_tied_head(0, 2); }), "head"));
}

// The same wherever it lies; another one for another config.json, other names and other weights.
TEST_F(HfSource, ItsIdTellsWeightsApart) {
  HfModel model;
  model.tensors.ignored = {"more"};
  write("model.safetensors", {{{"w", Dtype::kF32, {100000}}, 0}});
  const std::string id = open(model).id();
  EXPECT_EQ(id.size(), 16u);
  fs::rename(hf_, dir_ / "moved");
  EXPECT_EQ(HuggingFaceSource(dir_ / "moved", config_, model).id(), id);
  fs::rename(dir_ / "moved", hf_);
  write("model.safetensors", {{{"w", Dtype::kF32, {100000}}, 1}});
  EXPECT_NE(open(model).id(), id);
  write("model.safetensors", {{{"v", Dtype::kF32, {100000}}, 0}});
  EXPECT_NE(open(model).id(), id);
  write("model.safetensors", {{{"w", Dtype::kF32, {100000}}, 0}});
  EXPECT_EQ(open(model).id(), id);
  config_["rope_theta"] = 5;
  EXPECT_NE(open(model).id(), id);
}

}  // namespace
}  // namespace tessera::testing
