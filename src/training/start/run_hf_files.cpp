#include "training/start/run_hf_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files/files.h"
#include "base/text/json_text.h"
#include "checkpoint/huggingface/hf_files.h"

namespace tessera {
namespace {

using nlohmann::json;

constexpr int64_t kMaxProcessorBytes = int64_t{1} << 20;
constexpr int kBilinear = 2;  // by the Python Imaging Library's numbers, as tools/pack_images.py

// data.mean or data.std with one number for each channel; `plain`: what an empty list stands for.
std::vector<double> by_channel(const std::vector<double>& values, int64_t channels, double plain) {
  return values.empty() ? std::vector<double>(static_cast<size_t>(channels), plain) : values;
}

// By transformers' rules for ViTImageProcessor, which has nothing of ViT's own: a plain resize,
// rescale and normalise for any model of images of a fixed size. Of the start's processor only the
// resampling stays: training sees images of the right size, and other steps (crops, padding) it
// never took.
json image_processor(const Config& config, const json& there) {
  const auto [channels, height, width] = config.model->input().image_shape;
  const json resample = there.value("resample", json(kBilinear));
  return {{"image_processor_type", "ViTImageProcessor"},
          {"do_resize", true},
          {"size", {{"height", height}, {"width", width}}},
          {"resample", resample.is_number_integer() ? resample : json(kBilinear)},
          {"do_rescale", true},
          {"rescale_factor", 1.0 / 255.0},
          {"do_normalize", true},
          {"image_mean", by_channel(config.data.mean, channels, 0.0)},
          {"image_std", by_channel(config.data.std, channels, 1.0)}};
}

// Where `there` normalises otherwise than `here`, which is this run's: "image_mean [0.5] there,
// data.mean [0.0] here".
std::vector<std::string> differences(const json& there, const json& here, const Config& config) {
  std::vector<std::string> lines;
  if (there.value("do_normalize", json(true)) == json(false)) {
    if (!config.data.mean.empty() || !config.data.std.empty())
      lines.emplace_back("do_normalize false there, data.mean or data.std set here");
    return lines;
  }
  for (const auto& [key, ours] : {std::pair{"image_mean", "data.mean"}, {"image_std", "data.std"}})
    if (there.contains(key) && there[key] != here[key])
      lines.push_back(
          fmt::format("{} {} there, {} {} here", key, there[key].dump(), ours, here[key].dump()));
  return lines;
}

}  // namespace

void write_run_hf_files(const Config& config, const RunStart& start, Console& console) {
  const std::filesystem::path folder = std::filesystem::path(config.run.dir) / kHfFilesFolder;
  const bool at_step_0 = !start.folder || start.weights_only;
  if (at_step_0 || start.hf_files) replace_hf_files(start.hf_files, folder);
  if (config.model->input().kind != DataKind::kImages) return;

  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail("train", "cannot make the folder {}: {}", folder.string(), error.message());
  // transformers would prefer the image processor in that file to ours.
  std::filesystem::remove(folder / "processor_config.json", error);
  const std::filesystem::path file = folder / kHfImageProcessorFile;
  json there = json::object();
  if (type_of(file) != std::filesystem::file_type::not_found)
    there = parse_json(read_small_file(file, kMaxProcessorBytes), file.string());
  if (!there.is_object())
    fail_user("train", "{}: must be a JSON object; remove it, and this run's is written",
              file.string());
  const json here = image_processor(config, there);
  const auto lines = differences(there, here, config);
  if (at_step_0 && !lines.empty())
    console.warn(
        fmt::format("the start's {} normalises images otherwise than this run: {}; exports of this "
                    "run will say what it does",
                    kHfImageProcessorFile, fmt::join(lines, "; ")));
  write_file_atomic(file, here.dump(2) + "\n");
}

}  // namespace tessera
