#include "checkpoint/tools/average.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "checkpoint/huggingface/hf_files.h"
#include "checkpoint/huggingface/replaceable.h"
#include "checkpoint/store/stored_checkpoint.h"
#include "checkpoint/store/whole_folder.h"
#include "checkpoint/store/write_pieces.h"
#include "checkpoint/tools/compare_tensors.h"
#include "checkpoint/tools/side_by_side.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Inputs = std::vector<std::shared_ptr<const StoredCheckpoint>>;

// UserError unless both have the same tensors; five names of each kind.
void check_same_tensors(const Manifest& a, const fs::path& a_dir, const Manifest& b,
                        const fs::path& b_dir) {
  const TensorsDiffer differ = compare_tensors(a, b);
  if (differ.none()) return;
  std::vector<std::string> parts;
  const auto add = [&](const std::string& what, std::vector<std::string> names) {
    if (names.empty()) return;
    const size_t count = names.size();
    names.resize(std::min<size_t>(count, 5));
    parts.push_back(
        fmt::format("{} {}: {}{}", count, what, fmt::join(names, ", "), count > 5 ? ", ..." : ""));
  };
  std::vector<std::string> shapes;
  for (const TensorsDiffer::Shape& shape : differ.shapes) shapes.push_back(shape.text());
  add("only in the first", differ.only_a);
  add("only in the second", differ.only_b);
  add("of another shape", shapes);
  fail_user("checkpoint", "{} and {} hold other tensors: {}; a mean is of checkpoints of one model",
            a_dir.string(), b_dir.string(), fmt::join(parts, "; "));
}

// Lines about the keys of config.json in which another model differs from the first's.
void compare_models(const nlohmann::json& first, const nlohmann::json& other,
                    const fs::path& other_dir, std::vector<std::string>& notes) {
  if (!first.is_object() || !other.is_object()) return;
  const auto value_of = [](const nlohmann::json& model, const std::string& key) {
    return model.contains(key) ? model[key].dump() : std::string("missing");
  };
  nlohmann::json keys = first;
  keys.update(other);
  for (const auto& item : keys.items()) {
    const std::string kept = value_of(first, item.key()), left = value_of(other, item.key());
    if (kept != left)
      notes.push_back(fmt::format("{}: {} is {} there and {} in the first, which is kept",
                                  other_dir.string(), item.key(), left, kept));
  }
}

// The manifest of the mean, without its files.
Manifest mean_manifest(const Inputs& inputs, std::vector<std::string>& notes) {
  const Manifest& first = inputs[0]->manifest();
  const Manifest* newest = &first;
  for (const auto& input : inputs) {
    const Manifest& other = input->manifest();
    check_same_tensors(first, inputs[0]->dir(), other, input->dir());
    compare_models(first.model, other.model, input->dir(), notes);
    if (other.step > newest->step) newest = &other;
  }
  Manifest manifest;
  manifest.step = newest->step;
  manifest.samples = newest->samples;
  manifest.tokens = newest->tokens;
  manifest.states = {kStateParam};
  manifest.model = first.model;
  manifest.mesh = {{"dp_replicate", 1}, {"dp_shard", 1}, {"tp", 1}};
  manifest.writer = "tessera average";
  for (const TensorInfo& tensor : first.tensors)
    manifest.tensors.push_back({tensor.name, tensor.shape});
  return manifest;
}

template <typename Element>
void append_mean(SideBySide& inputs, const TensorInfo& tensor, size_t count,
                 std::vector<Element>& mean, RankFileWriter& writer) {
  inputs.read(tensor, kStateParam, [&](const std::vector<const double*>& values, int64_t numel) {
    mean.resize(static_cast<size_t>(numel));
    for (int64_t i = 0; i < numel; ++i) {
      double sum = values[0][i];
      for (size_t k = 1; k < count; ++k) sum += values[k][i];
      mean[static_cast<size_t>(i)] = static_cast<Element>(sum / static_cast<double>(count));
    }
    writer.append(mean.data(), numel * static_cast<int64_t>(sizeof(Element)));
  });
}

}  // namespace

std::vector<std::string> average_steps(const std::vector<fs::path>& step_dirs, const fs::path& out,
                                       const ToolOptions& tool) {
  if (step_dirs.size() < 2)
    fail_user("checkpoint", "{} step folder is given; a mean is of two or more", step_dirs.size());
  Inputs inputs;
  for (const fs::path& step_dir : step_dirs) inputs.push_back(StoredCheckpoint::open(step_dir));
  std::vector<std::string> notes;
  Manifest manifest = mean_manifest(inputs, notes);
  std::vector<FilePiece> pieces;
  for (const TensorInfo& tensor : manifest.tensors) {
    bool wide = false;
    for (const auto& input : inputs) wide |= input->dtype(tensor.name, kStateParam) == Dtype::kF64;
    pieces.push_back(whole_piece(tensor, kStateParam, wide ? Dtype::kF64 : Dtype::kF32));
  }
  WholeFolder folder(out, Replace::when(tool.replace, why_no_step_folder, step_dirs));
  write_pieces(folder.partial(), pieces, manifest, tool, [&]() -> FillPiece {
    struct Reading {
      SideBySide inputs;
      std::vector<float> narrow;
      std::vector<double> wide;
    };
    const auto reading = std::make_shared<Reading>(Reading{SideBySide(inputs), {}, {}});
    return [&, reading](size_t i, RankFileWriter& writer) {
      const TensorInfo& tensor = manifest.tensors[i];
      if (pieces[i].dtype == Dtype::kF64)
        append_mean(reading->inputs, tensor, inputs.size(), reading->wide, writer);
      else
        append_mean(reading->inputs, tensor, inputs.size(), reading->narrow, writer);
    };
  });
  if (const auto carried = find_hf_files(step_dirs[0]))
    copy_hf_files(*carried, folder.partial() / kHfFilesFolder);
  write_manifest(folder.partial(), manifest);
  folder.publish();
  notes.insert(notes.end(), folder.notes().begin(), folder.notes().end());
  return notes;
}

}  // namespace tessera
