#include "training/progress.h"

#include "base/error.h"

namespace tessera {
namespace {

using nlohmann::json;

SampleRange range_of(const json& pair) {
  const SampleRange range{pair.at(0).get<int64_t>(), pair.at(1).get<int64_t>()};
  if (pair.size() != 2 || range.begin < 0 || range.begin >= range.end)
    fail_user("train", "the manifest's training.skipped_samples holds {}, which is no range",
              pair.dump());
  return range;
}

}  // namespace

Progress progress_of(const Manifest& manifest) {
  Progress progress;
  progress.step = manifest.step;
  progress.position = manifest.samples;
  progress.updates = manifest.step;
  if (manifest.training.is_null()) return progress;
  try {
    const json& saved = manifest.training;
    progress.updates = saved.at("updates").get<int64_t>();
    progress.failures_in_a_row = saved.at("failures_in_a_row").get<int64_t>();
    for (const json& pair : saved.at("skipped_samples")) progress.skipped.push_back(range_of(pair));
    const json& scale = saved.at("loss_scale");
    progress.loss_scale = {scale.at("scale").get<double>(), scale.at("good_steps").get<int64_t>(),
                           scale.at("hysteresis_left").get<int64_t>()};
  } catch (const json::exception& error) {
    fail_user("train", "the manifest's field 'training' cannot be read: {}; it is {}", error.what(),
              manifest.training.dump().substr(0, 200));
  }
  return progress;
}

void record_progress(const Progress& progress, Manifest& manifest) {
  manifest.step = progress.step;
  manifest.samples = progress.position;
  json skipped = json::array();
  for (const SampleRange& range : progress.skipped) skipped.push_back({range.begin, range.end});
  manifest.training = {{"updates", progress.updates},
                       {"failures_in_a_row", progress.failures_in_a_row},
                       {"skipped_samples", std::move(skipped)},
                       {"loss_scale",
                        {{"scale", progress.loss_scale.scale},
                         {"good_steps", progress.loss_scale.good_steps},
                         {"hysteresis_left", progress.loss_scale.hysteresis_left}}}};
}

}  // namespace tessera
