#include "checkpoint/format/manifest.h"

#include "base/xxh3.h"
#include "checkpoint_testing.h"

namespace tessera::testing {
namespace {

class Manifests : public Scratch {
 protected:
  Manifests() {
    manifest_ = test_manifest(100, kAllStates);
    manifest_.files = {{"rank-00000.safetensors", 123, "0123456789abcdef"}};
    manifest_.index = {"pieces.safetensors", 45, "fedcba9876543210"};
    write_manifest(dir_, manifest_);
  }
  std::string error() const {
    return user_error([&] { read_manifest(dir_); });
  }
  Manifest manifest_;
  fs::path path_ = dir_ / "manifest.json";
};

TEST_F(Manifests, RoundTrip) {
  const Manifest read = read_manifest(dir_);
  EXPECT_EQ(read.step, 100);
  EXPECT_EQ(read.samples, 800);
  EXPECT_EQ(read.tokens, 204800);
  EXPECT_EQ(read.seed, ~uint64_t{0});
  EXPECT_EQ(read.states, manifest_.states);
  EXPECT_EQ(read.tensors, manifest_.tensors);
  EXPECT_EQ(read.model, manifest_.model);
  EXPECT_EQ(read.config, manifest_.config);
  EXPECT_EQ(read.data, manifest_.data);
  EXPECT_EQ(read.mesh, manifest_.mesh);
  EXPECT_EQ(read.writer, manifest_.writer);
  ASSERT_EQ(read.files.size(), 1u);
  EXPECT_EQ(read.files[0].name, "rank-00000.safetensors");
  EXPECT_EQ(read.files[0].size, 123);
  EXPECT_EQ(read.files[0].header_xxh3, "0123456789abcdef");
  ASSERT_TRUE(read.index);
  EXPECT_EQ(read.index->name, "pieces.safetensors");
  EXPECT_EQ(read.index->size, 45);
  EXPECT_EQ(read.index->xxh3, "fedcba9876543210");
}

TEST_F(Manifests, NumbersOfTheConfigurationSurviveExactly) {
  manifest_.config = {{"a", 0.1}, {"b", 1e-300}, {"c", 1e22}, {"d", -0.0}, {"e", 5e-324}};
  write_manifest(dir_, manifest_);
  EXPECT_EQ(read_manifest(dir_).config, manifest_.config);
}

TEST_F(Manifests, MalformedFieldsAreNamed) {
  struct Case {
    const char* from;
    const char* to;
    const char* message;
  };
  const Case cases[] = {
      {"\"step\": 100", "\"step\": -1", "field 'step' is -1"},
      {"\"step\": 100", "\"step\": 1e3", "field 'step' is 1000.0"},
      {"\"step\": 100", "\"step\": \"100\"", "field 'step' is \"100\""},
      {"\"step\": 100", "\"step\": 18446744073709551615", "field 'step'"},
      {"\"step\": 100,", "", "field 'step' is missing"},
      {"\"step\": 100", "\"step\": 100, \"step\": 100", "key 'step' is given twice"},
      {"\"samples\": 800", "\"samples\": null", "field 'samples' is null"},
      {"\"version\": 3", "\"version\": 0", "field 'version' is 0"},
      {"\"version\": 3", "\"version\": \"1\"", "field 'version' is \"1\""},
      {"\"tessera-checkpoint\"", "\"other\"", "field 'format' is \"other\""},
      {"rank-00000.safetensors", "../x", "field 'files[0].name' is \"../x\""},
      {"rank-00000.safetensors", "/etc/passwd", "files[0].name"},
      {"rank-00000.safetensors", "a/b", "plain file name"},
      {"rank-00000.safetensors", "..", "plain file name"},
      {"rank-00000.safetensors", "a\\u0000b", "plain file name"},
      {"\"size\":123", "\"size\":-5", "field 'files[0].size' is -5"},
      {"0123456789abcdef", "0123", "field 'files[0].header_xxh3'"},
      {"\"index\": {", "\"other\": {", "field 'index' is missing"},
      {"\"index\": {", "\"index\": 3, \"other\": {", "index is not an object"},
      {"pieces.safetensors", "../pieces", "field 'index.name' is \"../pieces\""},
      {"pieces.safetensors", "rank-00000.safetensors", "a name that none of the files has"},
      {"\"size\":45", "\"size\":4.5", "field 'index.size' is 4.5"},
      {"fedcba9876543210\"}", "fedc\"}", "field 'index.xxh3'"},
      {"\"name\":\"norm\"", "\"name\":\"embed\"", "field 'tensors[1].name' is \"embed\""},
      {"\"shape\":[7,5]", "\"shape\":[7,-5]", "field 'tensors[0].shape'"},
      {"\"shape\":[7,5]", "\"shape\":[4294967296,4294967296]", "field 'tensors[0].shape'"},
      {"\"shape\":[7,5]", "\"shape\":7", "field 'tensors[0].shape' is 7"},
      {"[\"param\"", "[\"param\",\"param\"", "field 'states'"},
      {"[\"param\"", "[\"a/b\"", "field 'states'"},
      {"\"data\": [", "\"data\": [3,", "field 'data'"},
      {"\"data\": [", "\"data\": 3, \"other\": [", "field 'data' is 3"},
  };
  for (const Case& c : cases) {
    write_manifest(dir_, manifest_);
    replace_in_file(path_, c.from, c.to);
    EXPECT_THROW(read_manifest(dir_), DamagedError) << c.from;
    const std::string message = error();
    EXPECT_TRUE(contains(message, c.message)) << c.from;
    EXPECT_TRUE(contains(message, "manifest.json")) << c.from;
  }
}

// Before the data were recorded there was no such field; imported weights have no data.
TEST_F(Manifests, DataMayBeUnknown) {
  nlohmann::json root = nlohmann::json::parse(slurp(path_));
  root.erase("data");
  root.erase("xxh3");
  const std::string text = root.dump();
  root["xxh3"] = xxh3_hex(text.data(), text.size());
  spit(path_, root.dump());
  EXPECT_TRUE(read_manifest(dir_).data.is_null());
  manifest_.data = nullptr;
  write_manifest(dir_, manifest_);
  EXPECT_TRUE(read_manifest(dir_).data.is_null());
}

TEST_F(Manifests, ATensorMayLackStates) {
  manifest_.tensors[0].states = {"param"};
  manifest_.training = {{"updates", 98}};
  write_manifest(dir_, manifest_);
  const Manifest read = read_manifest(dir_);
  EXPECT_EQ(read.tensors, manifest_.tensors);
  EXPECT_EQ(read.training, manifest_.training);
  EXPECT_EQ(read.states_of(read.tensors[0]), std::vector<std::string>{"param"});
  EXPECT_EQ(read.states_of(read.tensors[1]), kAllStates);
  manifest_.tensors[0].states = {"param", "momentum"};
  write_manifest(dir_, manifest_);
  EXPECT_TRUE(contains(error(), "field 'tensors[0].states'"));
  EXPECT_TRUE(contains(error(), "some of the manifest's states"));
}

TEST_F(Manifests, Version1IsRead) {
  nlohmann::json root = nlohmann::json::parse(slurp(path_));
  root["version"] = 1;
  root.erase("training");
  root.erase("index");
  root.erase("xxh3");
  const std::string text = root.dump();
  root["xxh3"] = xxh3_hex(text.data(), text.size());
  spit(path_, root.dump());
  const Manifest read = read_manifest(dir_);
  EXPECT_EQ(read.tensors, manifest_.tensors);
  EXPECT_TRUE(read.training.is_null());
  EXPECT_FALSE(read.index);
}

// A newer program's checkpoint is whole; only this program cannot read it.
TEST_F(Manifests, ANewerVersionIsAnErrorButNoDamage) {
  replace_in_file(path_, "\"version\": 3", "\"version\": 4");
  try {
    read_manifest(dir_);
    FAIL();
  } catch (const DamagedError&) {
    FAIL() << "taken for damage";
  } catch (const UserError& error) {
    EXPECT_TRUE(contains(error.what(), "format version 4, this program reads 1 to 3"));
  }
}

TEST_F(Manifests, TruncatedAtAnyByteIsAnError) {
  const std::string text = slurp(path_);
  for (size_t size = 0; size + 2 < text.size(); ++size) {  // the last two are "}" and a line feed
    spit(path_, text.substr(0, size));
    EXPECT_TRUE(contains(error(), "manifest.json")) << size;
  }
}

TEST_F(Manifests, AnyFlippedBitIsAnErrorOrChangesNothing) {
  const std::string text = slurp(path_);
  for (size_t at = 0; at < text.size(); ++at) {
    std::string flipped = text;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    spit(path_, flipped);
    EXPECT_TRUE(contains(error(), "manifest.json")) << at << ": " << flipped[at];
  }
}

TEST_F(Manifests, EditedContentsAreNoticed) {
  replace_in_file(path_, "\"samples\": 800", "\"samples\": 808");
  EXPECT_TRUE(contains(error(), "damaged or was edited"));
}

TEST_F(Manifests, MissingAndEmpty) {
  spit(path_, "");
  EXPECT_TRUE(contains(error(), "not valid JSON"));
  spit(path_, "[]");
  EXPECT_TRUE(contains(error(), "is not an object"));
  fs::remove(path_);
  EXPECT_TRUE(contains(error(), "No such file"));
}

TEST_F(Manifests, TensorsThatDoNotFitTheModelAreListed) {
  std::vector<TensorInfo> expected = manifest_.tensors;
  std::reverse(expected.begin(), expected.end());
  EXPECT_NO_THROW(check_tensors(manifest_, expected));

  expected = manifest_.tensors;
  expected[0].shape = {8, 5};
  expected[1].name = "other";
  for (int i = 0; i < 6; ++i) expected.push_back({"layer." + std::to_string(i), {1}});
  const std::string message = user_error([&] { check_tensors(manifest_, expected); });
  EXPECT_TRUE(contains(message, "7 missing: other, layer.0, layer.1, layer.2, layer.3, ..."));
  EXPECT_TRUE(contains(message, "1 unexpected: norm"));
  EXPECT_TRUE(contains(message, "embed is [7, 5] in the checkpoint and [8, 5] in the model"));
}

}  // namespace
}  // namespace tessera::testing
