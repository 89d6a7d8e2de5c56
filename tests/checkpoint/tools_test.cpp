// The tools on checkpoints of the test model: what they find, what they write, what they refuse.

#include <cmath>
#include <limits>
#include <set>
#include <sstream>

#include "base/text/json_text.h"
#include "checkpoint/format/rank_file.h"
#include "checkpoint/huggingface/consolidate.h"
#include "checkpoint/huggingface/import.h"
#include "checkpoint/huggingface/replaceable.h"
#include "checkpoint/store/inspect.h"
#include "checkpoint/tools/average.h"
#include "checkpoint/tools/diff.h"
#include "checkpoint/tools/list.h"
#include "checkpoint/tools/reshard.h"
#include "checkpoint/tools/verify.h"
#include "checkpoint_testing.h"
#include "safetensors/reader.h"

namespace tessera::testing {
namespace {

using nlohmann::json;

class Tools : public Scratch {
 protected:
  // A checkpoint of these tensors in one file, whose states all hold the values.
  fs::path save_values(const std::string& name,
                       const std::vector<std::pair<TensorInfo, float>>& all,
                       const std::vector<std::string>& states = {kStateParam}) {
    fs::path result;
    run_thread_ranks(1, [&](Communicator& world) {
      Manifest manifest = test_manifest(1, states);
      manifest.tensors.clear();
      std::vector<std::vector<float>> data;
      std::vector<Piece> pieces;
      for (const auto& [info, value] : all) {
        manifest.tensors.push_back(info);
        const Box box = whole_box(info.shape);
        for (const std::string& state : manifest.states_of(info)) {
          data.emplace_back(static_cast<size_t>(box.numel()), value);
          pieces.push_back({info.name, state, {box, 0, box.numel()}});
          pieces.back().data = reinterpret_cast<std::byte*>(data.back().data());
        }
      }
      result = CheckpointManager(dir_ / name, 0, world, nullptr).save(manifest, pieces);
    });
    return result;
  }

  static std::vector<float> values_of(const fs::path& step, const std::string& tensor,
                                      const std::string& state = kStateParam) {
    CheckpointReader reader(step);
    std::vector<float> values;
    reader.stream(tensor, state, Dtype::kF32, [&](const std::byte* data, int64_t bytes) {
      const auto* from = reinterpret_cast<const float*>(data);
      values.insert(values.end(), from, from + bytes / 4);
    });
    return values;
  }

  static void flip_last_byte(const fs::path& file) {
    std::string text = slurp(file);
    text.back() ^= 1;
    spit(file, text);
  }

  // The names and contents of all files below a folder.
  static std::map<std::string, std::string> contents(const fs::path& folder) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.is_regular_file())
        files[fs::relative(entry.path(), folder).string()] = slurp(entry.path());
    return files;
  }

  // Cuts every tensor into equal intervals, the states of all ranks alike.
  static std::function<PiecesOfRank(const Manifest&)> equal_parts(int ranks) {
    return [ranks](const Manifest& manifest) -> PiecesOfRank {
      return [&manifest, ranks](int rank) {
        std::vector<Piece> pieces;
        for (const TensorInfo& tensor : manifest.tensors)
          for (const std::string& state : manifest.states_of(tensor)) {
            const Box box = whole_box(tensor.shape);
            pieces.push_back(
                {tensor.name,
                 state,
                 {box, share(box.numel(), rank, ranks), share(box.numel(), rank + 1, ranks)}});
          }
        return pieces;
      };
    };
  }

  ToolOptions forced() const {
    ToolOptions tool;
    tool.replace = true;
    return tool;
  }

  fs::path out_ = dir_ / "out";
};

// ---- list ------------------------------------------------------------------------------------

TEST_F(Tools, ListSaysWhatEachFolderIs) {
  const fs::path checkpoints = dir_ / "checkpoints";
  save_on_mesh(checkpoints, 9, 2, 1, {kStateParam});
  const fs::path newest = save_on_mesh(checkpoints, 10, 2, 2, {kStateParam});
  fs::rename(save_on_mesh(checkpoints, 100000000, 1, 1, {kStateParam}),
             checkpoints / "step-100000000.broken");
  fs::resize_file(save_on_mesh(checkpoints, 11, 1, 1, {kStateParam}) / rank_file_name(0), 100);
  fs::remove(save_on_mesh(checkpoints, 12, 1, 1, {kStateParam}) / rank_file_name(0));
  fs::remove(save_on_mesh(checkpoints, 13, 1, 1, {kStateParam}) / "manifest.json");
  fs::create_directory(checkpoints / "step-00000014.partial.2");
  spit(checkpoints / "step-00000014.partial.2" / rank_file_name(0), "1234567");
  fs::create_directory(checkpoints / "step-00000001.deleting");
  spit(checkpoints / "validation.json", R"({"losses": {"9": 2.5, "10": 1.25, "11": 7}})");

  for (const fs::path& run : {dir_, dir_ / "", checkpoints}) {
    const StepList list = list_steps(run);
    EXPECT_EQ(list.newest, 10);
    EXPECT_TRUE(list.notes.empty());
    std::vector<std::string> found;
    for (const ListedStep& step : list.steps)
      found.push_back(fmt::format("{} {}", step.step, step.state));
    EXPECT_EQ(found, (std::vector<std::string>{"1 deleting", "9 whole", "10 whole", "11 damaged",
                                               "12 damaged", "13 damaged", "14 partial",
                                               "100000000 broken"}));
  }
  const json rows = json::parse(steps_json(list_steps(dir_)).dump());
  EXPECT_EQ(rows["newest"], 10);
  const json& row = rows["steps"][2];
  EXPECT_EQ(row["name"], "step-00000010");
  EXPECT_EQ(row["validation_loss"], 1.25);
  EXPECT_EQ(row["files"], 4);
  EXPECT_EQ(row["mesh"], (json{{"dp_shard", 1}}));
  int64_t bytes = 0;
  for (const auto& [name, text] : contents(newest)) bytes += static_cast<int64_t>(text.size());
  EXPECT_EQ(row["bytes"], bytes);
  EXPECT_EQ(rows["steps"][6]["bytes"], 7);
  EXPECT_TRUE(contains(rows["steps"][3]["why"], "has 100 bytes"));
  EXPECT_TRUE(contains(rows["steps"][4]["why"], "rank-00000.safetensors: No such file"));
  EXPECT_FALSE(rows["steps"][3].contains("validation_loss"));  // of what is not there any more
  std::ostringstream text;
  print_steps(list_steps(dir_), text);
  for (const char* part : {"1.2500  whole, the newest\n", "partial (step-00000014.partial.2)",
                           "damaged: it has no manifest.json", "2.5000  whole\n"})
    EXPECT_TRUE(contains(text.str(), part));
}

TEST_F(Tools, ListOfWhatIsNoRun) {
  EXPECT_TRUE(contains(user_error([&] { list_steps(dir_ / "none"); }), "none does not exist"));
  EXPECT_TRUE(contains(user_error([&] { list_steps(dir_); }), "holds no checkpoints"));
  const fs::path step = save_on_mesh(dir_, 1, 1, 1, {kStateParam});
  EXPECT_TRUE(
      contains(user_error([&] { list_steps(step); }), "is a step folder, and a run folder is"));
  fs::create_directories(dir_ / "run/checkpoints");
  const StepList none = list_steps(dir_ / "run");
  EXPECT_EQ(none.newest, std::nullopt);
  EXPECT_TRUE(json::parse(steps_json(none).dump())["newest"].is_null());
  spit(dir_ / "run/checkpoints/validation.json", "{");
  EXPECT_EQ(list_steps(dir_ / "run").notes.size(), 1u);
}

TEST_F(Tools, InspectAsJson) {
  const fs::path step = save_on_mesh(dir_, 7, 2, 2, kAllStates);
  const json found = json::parse(inspect_json(step).dump());
  EXPECT_EQ(found["step"], 7);
  EXPECT_EQ(found["samples"], 56);
  EXPECT_EQ(found["seed"], ~uint64_t{0});
  EXPECT_EQ(found["tensors"].size(), test_tensors().size());
  EXPECT_EQ(found["tensors"][0]["shape"], (json{7, 5}));
  EXPECT_EQ(found["tensors"][0]["states"]["exp_avg"], "F32");
  EXPECT_EQ(found["files"].size(), 4u);
  EXPECT_EQ(found["files"][3]["name"], "rank-00003.safetensors");
}

// ---- verify ----------------------------------------------------------------------------------

TEST_F(Tools, VerifyNamesEveryDamagedFile) {
  const fs::path step = save_on_mesh(dir_, 1, 3, 2, kAllStates);
  for (const int threads : {1, 4}) {
    ToolOptions tool;
    tool.threads = threads;
    int64_t last = 0, size = 0;
    std::mutex mutex;
    tool.progress = [&](int64_t done, int64_t total) {
      const std::lock_guard lock(mutex);
      last = std::max(last, done);
      size = total;
    };
    EXPECT_TRUE(verify_step(step, tool).empty());
    EXPECT_EQ(last, size);
    EXPECT_GT(size, 0);
  }
  for (const int rank : {4, 1}) flip_last_byte(step / rank_file_name(rank));
  for (const int threads : {1, 4}) {
    ToolOptions tool;
    tool.threads = threads;
    const std::vector<std::string> damage = verify_step(step, tool);
    ASSERT_EQ(damage.size(), 2u);
    EXPECT_TRUE(contains(damage[0], "rank-00001.safetensors: piece '"));
    EXPECT_TRUE(contains(damage[1], "rank-00004.safetensors: piece '"));
  }
  spit(step / rank_file_name(2), "");
  EXPECT_TRUE(contains(user_error([&] { verify_step(step); }), "rank-00002.safetensors has 0"));
}

// ---- diff ------------------------------------------------------------------------------------

TEST_F(Tools, DiffOfOneStateOnTwoMeshesIsNone) {
  const fs::path a = save_on_mesh(dir_ / "a", 1, 2, 2, kAllStates);
  const fs::path b = save_on_mesh(dir_ / "b", 5, 3, 1, kAllStates);
  for (const int threads : {1, 3}) {
    ToolOptions tool;
    tool.threads = threads;
    const CheckpointDifference none = diff_steps(a, b, tool);
    EXPECT_TRUE(none.equal());
    EXPECT_EQ(none.states.size(), 3 * test_tensors().size());
  }
}

TEST_F(Tools, DiffSaysWhatDiffers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const fs::path a = save_values("a",
                                 {{{"same", {3}}, 1.0f},
                                  {{"near", {4}}, 2.0f},
                                  {{"left", {1}}, 0.0f},
                                  {{"shape", {2, 3}}, 0.0f},
                                  {{"nan", {2}}, nan},
                                  {{"half nan", {2}}, nan},
                                  {{"frozen", {2}, {kStateParam}}, 1.0f}},
                                 {kStateParam, kStateExpAvg});
  const fs::path b = save_values("b",
                                 {{{"near", {4}}, 2.5f},
                                  {{"same", {3}}, 1.0f},
                                  {{"right", {1}}, 0.0f},
                                  {{"shape", {3, 2}}, 0.0f},
                                  {{"nan", {2}}, nan},
                                  {{"half nan", {2}}, 1.0f},
                                  {{"frozen", {2}}, 1.0f}},
                                 {kStateParam, kStateExpAvg});
  const CheckpointDifference found = diff_steps(a, b);
  EXPECT_FALSE(found.equal());
  const json rows = json::parse(difference_json(found).dump());
  EXPECT_EQ(rows["equal"], false);
  EXPECT_EQ(rows["tensors_only_a"], json{"left"});
  EXPECT_EQ(rows["tensors_only_b"], json{"right"});
  EXPECT_EQ(rows["states_only_b"], json{"frozen/exp_avg"});
  EXPECT_EQ(rows["states_only_a"], json::array());
  EXPECT_EQ(rows["shapes"], (json{{{"tensor", "shape"}, {"a", {2, 3}}, {"b", {3, 2}}}}));
  std::map<std::string, json> by_name;
  for (const json& row : rows["states"])
    if (row["state"] == "param") by_name[row["tensor"]] = row;
  EXPECT_EQ(by_name.size(), 5u);
  EXPECT_EQ(by_name["near"]["max"], 0.5);
  EXPECT_EQ(by_name["near"]["mean"], 0.5);
  EXPECT_EQ(by_name["near"]["differing"], 4);
  EXPECT_EQ(by_name["same"]["differing"], 0);
  EXPECT_EQ(by_name["nan"]["differing"], 0);
  EXPECT_TRUE(by_name["half nan"]["max"].is_null());
  EXPECT_EQ(by_name["half nan"]["differing"], 2);
  std::ostringstream text;
  print_difference(found, text);
  for (const char* part : {"a/step-00000001: left\n", "b/step-00000001: right\n",
                           "shapes differ: shape is [2, 3] and [3, 2]\n", "near/exp_avg", "max inf",
                           "of 9 states that both have are equal\n"})
    EXPECT_TRUE(contains(text.str(), part));
}

TEST_F(Tools, DiffFindsDamageAndOtherDtypes) {
  const fs::path a = save_on_mesh(dir_ / "a", 1, 2, 1, {kStateParam});
  consolidate(a, out_, {});
  import_hugging_face(out_, dir_ / "same");
  EXPECT_TRUE(diff_steps(a, dir_ / "same").equal());
  flip_last_byte(a / rank_file_name(1));
  EXPECT_TRUE(contains(user_error([&] { diff_steps(dir_ / "same", a); }), "checksum"));
  EXPECT_TRUE(contains(user_error([&] { diff_steps(dir_ / "none", a); }), "none does not exist"));
}

// ---- average ---------------------------------------------------------------------------------

TEST_F(Tools, AverageIsTheMeanOfTheWeightsAlone) {
  const float tiny = 1e-3f;
  const TensorInfo w{"w", {3, 2}}, frozen{"v", {2}, {kStateParam}};
  const std::vector<std::string> states{kStateParam, kStateExpAvg};
  const fs::path a = save_values("a", {{w, 1.0f}, {frozen, tiny}}, states);
  const fs::path b = save_values("b", {{w, 2.0f}, {frozen, 2 * tiny}}, {kStateParam});
  const fs::path c = save_values("c", {{frozen, 4 * tiny}, {w, 6.0f}}, states);
  EXPECT_TRUE(average_steps({a, b, c}, out_).empty());
  const Manifest manifest = read_manifest(out_);
  EXPECT_EQ(manifest.states, std::vector<std::string>{kStateParam});
  EXPECT_TRUE(manifest.config.is_null());
  EXPECT_EQ(manifest.model, test_manifest(1, states).model);
  EXPECT_EQ(manifest.step, 1);
  EXPECT_EQ(values_of(out_, "w"), std::vector<float>(6, 3.0f));
  // One rounding of the mean in fp64.
  const double sum =
      static_cast<double>(tiny) + static_cast<double>(2 * tiny) + static_cast<double>(4 * tiny);
  EXPECT_EQ(values_of(out_, "v"), std::vector<float>(2, static_cast<float>(sum / 3)));
  EXPECT_TRUE(verify_step(out_).empty());
}

TEST_F(Tools, AverageOfAnyMeshesDoesNotDependOnThreads) {
  const fs::path a = save_on_mesh(dir_ / "a", 1, 2, 2, kAllStates);
  const fs::path b = save_on_mesh(dir_ / "b", 5, 3, 1, {kStateParam});
  for (const int threads : {1, 4}) {
    ToolOptions tool;
    tool.threads = threads;
    average_steps({a, b}, dir_ / std::to_string(threads), tool);
  }
  EXPECT_EQ(contents(dir_ / "1"), contents(dir_ / "4"));
  EXPECT_EQ(read_manifest(dir_ / "1").step, 5);
  for (const TensorInfo& tensor : test_tensors())
    EXPECT_EQ(values_of(dir_ / "1", tensor.name), values_of(a, tensor.name)) << tensor.name;
}

TEST_F(Tools, AverageRefusesOtherModels) {
  const fs::path a = save_values("a", {{{"w", {2}}, 1.0f}, {{"left", {2}}, 1.0f}});
  const fs::path b = save_values("b", {{{"w", {3}}, 1.0f}, {{"right", {2}}, 1.0f}});
  const std::string message = user_error([&] { average_steps({a, b}, out_); });
  for (const char* part : {"1 only in the first: left", "1 only in the second: right",
                           "1 of another shape: w is [2] and [3]"})
    EXPECT_TRUE(contains(message, part));
  EXPECT_TRUE(contains(user_error([&] { average_steps({a}, out_); }), "two or more"));
  EXPECT_FALSE(fs::exists(out_));
}

// ---- reshard ---------------------------------------------------------------------------------

TEST_F(Tools, ReshardKeepsAllButTheMesh) {
  const fs::path a = save_on_mesh(dir_ / "a", 7, 2, 2, kAllStates);
  for (const int threads : {1, 4}) {
    ToolOptions tool;
    tool.threads = threads;
    reshard_step(a, dir_ / std::to_string(threads), {1, 3, 1}, equal_parts(3), tool);
  }
  EXPECT_EQ(contents(dir_ / "1"), contents(dir_ / "4"));
  EXPECT_TRUE(diff_steps(a, dir_ / "1").equal());
  EXPECT_TRUE(verify_step(dir_ / "1").empty());
  Manifest before = read_manifest(a);
  const Manifest after = read_manifest(dir_ / "1");
  EXPECT_EQ(after.files.size(), 3u);
  EXPECT_EQ(after.mesh, (json{{"dp_replicate", 1}, {"dp_shard", 3}, {"tp", 1}}));
  EXPECT_EQ(after.tensors, before.tensors);
  EXPECT_EQ(after.states, before.states);
  EXPECT_EQ(std::tie(after.step, after.samples, after.tokens, after.seed, after.writer),
            std::tie(before.step, before.samples, before.tokens, before.seed, before.writer));
  for (const auto member :
       {&Manifest::model, &Manifest::config, &Manifest::data, &Manifest::training, &Manifest::run})
    EXPECT_EQ(after.*member, before.*member);
}

TEST_F(Tools, ReshardRefusesAMeshThatLeavesAHole) {
  const fs::path a = save_on_mesh(dir_ / "a", 7, 2, 2, {kStateParam});
  EXPECT_TRUE(contains(user_error([&] {
                         reshard_step(a, out_, {1, 2, 1}, equal_parts(3));
                       }),
                       "are in no file"));
  EXPECT_TRUE(contains(user_error([&] {
                         reshard_step(a, out_, {1, 0, 1}, equal_parts(1));
                       }),
                       "mesh 1x0x1"));
  EXPECT_FALSE(fs::exists(out_));
}

// ---- consolidate and import ------------------------------------------------------------------

TEST_F(Tools, TheWholeTrainingStateIsExported) {
  const fs::path a = save_on_mesh(dir_ / "a", 7, 2, 2, kAllStates);
  ConsolidateOptions options;
  options.with_optimizer = true;
  options.dtype = Dtype::kBF16;
  options.max_shard_bytes = 600;
  for (const int threads : {1, 4}) {
    options.tool.threads = threads;
    consolidate(a, dir_ / std::to_string(threads), options);
  }
  EXPECT_EQ(contents(dir_ / "1"), contents(dir_ / "4"));
  const fs::path state = dir_ / "1" / "training_state";
  const json numbers = parse_json(slurp(state / "state.json"), "state.json");
  EXPECT_EQ(numbers["step"], 7);
  EXPECT_EQ(numbers["config"], test_manifest(7, kAllStates).config);
  const json index = parse_json(slurp(state / "state.safetensors.index.json"), "index");
  EXPECT_EQ(index["weight_map"].size(), 3 * test_tensors().size());
  for (const TensorInfo& tensor : test_tensors())
    for (const std::string& name : kAllStates) {
      const std::string key = tensor.name + "/" + name;
      const fs::path file = state / index["weight_map"][key].get<std::string>();
      for (const TensorEntry& entry : read_safetensors_header(File::open(file)).entries) {
        if (entry.name != key) continue;
        EXPECT_EQ(entry.dtype, Dtype::kF32);  // whatever the weights beside it are
        EXPECT_EQ(entry.shape, tensor.shape);
        std::vector<float> values(static_cast<size_t>((entry.end - entry.begin) / 4));
        const File open = File::open(file);
        open.read_at(values.data(), entry.end - entry.begin,
                     read_safetensors_header(open).data_begin + entry.begin);
        EXPECT_EQ(values, values_of(a, tensor.name, name));
      }
    }
  import_hugging_face(dir_ / "1", dir_ / "back");  // is not disturbed by it
  EXPECT_EQ(read_manifest(dir_ / "back").tensors.size(), test_tensors().size());

  const fs::path weights = save_on_mesh(dir_ / "w", 1, 1, 1, {kStateParam});
  EXPECT_TRUE(contains(user_error([&] { consolidate(weights, out_, options); }),
                       "leave out --with-optimizer"));
}

TEST_F(Tools, ForceReplacesOnlyWhatTheSameToolWrote) {
  const fs::path a = save_on_mesh(dir_ / "a", 7, 2, 2, kAllStates);
  const fs::path b = save_values("b", {{{"w", {2}}, 1.0f}});
  fs::create_directory(a / "hf_files");
  spit(a / "hf_files/tokenizer.json", "tokens");
  ConsolidateOptions options;
  options.with_optimizer = true;
  consolidate(a, out_, options);
  EXPECT_EQ(why_no_export(out_), "");
  EXPECT_EQ(why_no_step_folder(a), "");
  EXPECT_NE(why_no_step_folder(out_), "");
  options.with_optimizer = false;
  EXPECT_TRUE(contains(user_error([&] { consolidate(b, out_, options); }), "--force replaces"));
  options.tool.replace = true;
  consolidate(b, out_, options);
  EXPECT_FALSE(fs::exists(out_ / "training_state"));  // nothing is left of the old one
  EXPECT_FALSE(fs::exists(out_ / "tokenizer.json"));
  const auto before = contents(a);
  // Neither a checkpoint by an export, nor the other way round, nor what is read.
  EXPECT_TRUE(contains(user_error([&] { consolidate(b, a, options); }), "is no part of an export"));
  EXPECT_TRUE(contains(user_error([&] {
                         average_steps({b, b}, out_, forced());
                       }),
                       "manifest.json"));
  EXPECT_TRUE(contains(user_error([&] { average_steps({b, a}, a, forced()); }), "other tensors"));
  EXPECT_TRUE(contains(user_error([&] { average_steps({a, a}, a, forced()); }), "is read"));
  EXPECT_TRUE(contains(user_error([&] {
                         reshard_step(a, a, {1, 1, 1}, equal_parts(1), forced());
                       }),
                       "is read"));
  EXPECT_EQ(contents(a), before);
  reshard_step(b, a, {1, 1, 1}, equal_parts(1), forced());
  EXPECT_TRUE(diff_steps(b, a).equal());
  import_hugging_face(
      out_, a, [](const json&) { return HfModel(); }, forced());
  EXPECT_EQ(read_manifest(a).writer, "tessera import");
}

// A folder that somebody works in is not ours, though we began it.
TEST_F(Tools, ForceSparesFoldersWithOtherFiles) {
  const fs::path a = save_on_mesh(dir_ / "a", 7, 1, 1, {kStateParam});
  ConsolidateOptions options;
  options.tool.replace = true;
  consolidate(a, out_, options);
  spit(out_ / "README.md", "my notes");
  EXPECT_TRUE(contains(user_error([&] { consolidate(a, out_, options); }), "README.md is no part"));
  fs::remove(out_ / "README.md");
  // Weights of another program under the same names, such as a model that was downloaded.
  SafetensorsWriter(out_ / "model.safetensors", {}, {{"format", "pt"}}).finish();
  EXPECT_TRUE(contains(user_error([&] { consolidate(a, out_, options); }),
                       "was written by another program"));
  fs::remove(out_ / "model.safetensors");
  EXPECT_TRUE(contains(user_error([&] { consolidate(a, out_, options); }), "holds no model"));
  spit(a / "notes.txt", "mine");
  const fs::path b = save_on_mesh(dir_ / "b", 7, 1, 1, {kStateParam});
  EXPECT_TRUE(contains(user_error([&] {
                         reshard_step(b, a, {1, 1, 1}, equal_parts(1), forced());
                       }),
                       "notes.txt is no part of a checkpoint"));
  EXPECT_EQ(slurp(a / "notes.txt"), "mine");
}

// Wider than the band that is turned at a time, and not a multiple of it.
TEST_F(Tools, LargeMatricesAreTransposedInBands) {
  const int64_t rows = 1500, columns = 3001;
  fs::path step;
  run_thread_ranks(1, [&](Communicator& world) {
    Manifest manifest = test_manifest(1, {kStateParam});
    manifest.tensors = {{"q", {rows, columns}}, {"k", {7, columns}}};
    std::vector<std::vector<float>> data;
    std::vector<Piece> pieces;
    for (const TensorInfo& tensor : manifest.tensors) {
      const Box box = whole_box(tensor.shape);
      data.emplace_back(static_cast<size_t>(box.numel()));
      for (int64_t i = 0; i < box.numel(); ++i)
        data.back()[static_cast<size_t>(i)] = test_value(tensor.name, "", i * i);
      pieces.push_back({tensor.name, kStateParam, {box, 0, box.numel()}});
      pieces.back().data = reinterpret_cast<std::byte*>(data.back().data());
    }
    step = CheckpointManager(dir_, 0, world, nullptr).save(manifest, pieces);
  });
  ConsolidateOptions options;
  options.tensors = [](const json&) {
    HfTensors names;
    names.tensors = {{"qk", {"q", "k"}, true}};
    return names;
  };
  options.tool.threads = 2;
  consolidate(step, out_, options);
  const File file = File::open(out_ / "model.safetensors");
  const SafetensorsHeader header = read_safetensors_header(file);
  ASSERT_EQ(header.entries.size(), 1u);
  EXPECT_EQ(header.entries[0].shape, (std::vector<int64_t>{columns, rows + 7}));
  std::vector<float> found(static_cast<size_t>(columns * (rows + 7)));
  file.read_at(found.data(), std::ssize(found) * 4, header.data_begin);
  const std::vector<float> q = values_of(step, "q"), k = values_of(step, "k");
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = 0; r < rows + 7; ++r) {
      const float expected = r < rows ? q[static_cast<size_t>(r * columns + c)]
                                      : k[static_cast<size_t>((r - rows) * columns + c)];
      ASSERT_EQ(found[static_cast<size_t>(c * (rows + 7) + r)], expected) << c << ", " << r;
    }
}

}  // namespace
}  // namespace tessera::testing
