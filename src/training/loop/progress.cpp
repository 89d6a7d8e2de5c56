#include "training/loop/progress.h"

#include "base/error.h"

namespace tessera {
namespace {

using nlohmann::json;

// Before rows were counted, every step had the global batch of the configuration.
int64_t rows_of(const Manifest& manifest) {
  const json::json_pointer key("/training/global_batch_size");
  const json batch = manifest.config.is_object() ? manifest.config.value(key, json()) : json();
  return batch.is_number_integer() ? manifest.step * batch.get<int64_t>() : manifest.samples;
}

json to_json(const std::optional<LossScaleState>& scale) {
  if (!scale) return nullptr;
  return {{"scale", scale->scale},
          {"good_steps", scale->good_steps},
          {"hysteresis_left", scale->hysteresis_left}};
}

std::optional<LossScaleState> scale_of(const json& saved) {
  if (saved.is_null()) return std::nullopt;
  const LossScaleState scale{saved.at("scale").get<double>(), saved.at("good_steps").get<int64_t>(),
                             saved.at("hysteresis_left").get<int64_t>()};
  // Older programs wrote this where no scale was in use.
  if (scale == LossScaleState{}) return std::nullopt;
  return scale;
}

}  // namespace

json to_json(const std::vector<SampleRange>& ranges) {
  json pairs = json::array();
  for (const SampleRange& range : ranges) pairs.push_back({range.begin, range.end});
  return pairs;
}

std::vector<SampleRange> ranges_of(const json& ranges, const std::string& where) {
  std::vector<SampleRange> result;
  for (const json& pair : ranges) {
    const SampleRange range{pair.at(0).get<int64_t>(), pair.at(1).get<int64_t>()};
    if (pair.size() != 2 || range.begin < 0 || range.begin >= range.end ||
        (!result.empty() && range.begin <= result.back().end))
      fail_user("train", "{} holds {}, which is no range", where, pair.dump());
    result.push_back(range);
  }
  return result;
}

Progress progress_of(const Manifest& manifest) {
  Progress progress;
  progress.step = manifest.step;
  progress.position = manifest.samples;
  progress.tokens = manifest.tokens;
  progress.rows = rows_of(manifest);
  progress.updates = manifest.step;
  if (manifest.training.is_null()) return progress;
  try {
    const json& saved = manifest.training;
    progress.updates = saved.at("updates").get<int64_t>();
    progress.rows = saved.value("rows", progress.rows);
    progress.failures_in_a_row = saved.at("failures_in_a_row").get<int64_t>();
    progress.last_failed_step = saved.value("last_failed_step", int64_t{0});
    progress.rollbacks = saved.value("rollbacks", int64_t{0});
    progress.skipped =
        ranges_of(saved.at("skipped_samples"), "the manifest's training.skipped_samples");
    progress.loss_scale = scale_of(saved.at("loss_scale"));
  } catch (const json::exception& error) {
    fail_user("train", "the manifest's field 'training' cannot be read: {}; it is {}", error.what(),
              manifest.training.dump().substr(0, 200));
  }
  return progress;
}

void record_progress(const Progress& progress, Manifest& manifest) {
  manifest.step = progress.step;
  manifest.samples = progress.position;
  manifest.tokens = progress.tokens;
  manifest.training = {{"updates", progress.updates},
                       {"rows", progress.rows},
                       {"failures_in_a_row", progress.failures_in_a_row},
                       {"last_failed_step", progress.last_failed_step},
                       {"rollbacks", progress.rollbacks},
                       {"skipped_samples", to_json(progress.skipped)},
                       {"loss_scale", to_json(progress.loss_scale)}};
}

}  // namespace tessera
