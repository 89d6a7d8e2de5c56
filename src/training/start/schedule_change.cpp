#include "training/start/schedule_change.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <variant>

#include "base/error.h"
#include "config/keys/fields.h"
#include "optim/lr_schedule.h"

namespace tessera {
namespace {

using nlohmann::json;

// Sets a member from what to_json() has made of it. The kinds of value that a schedule has.
struct FromJson {
  const json& value;
  void operator()(IntegerValue& v) const {
    v.set(value.is_string() ? std::nullopt : std::optional(value.get<int64_t>()));
  }
  void operator()(RealValue& v) const { *v.value = value.get<double>(); }
  void operator()(ChoiceValue& v) const {
    const auto word = std::find(v.words.begin(), v.words.end(), value.get<std::string>());
    if (word != v.words.end()) v.set(static_cast<int>(word - v.words.begin()));
  }
  template <typename T>
  void operator()(T&) const {}
};

}  // namespace

double Rates::at(int64_t step) const {
  return learning_rate(schedule, peak, schedule.steps, step);
}

Rates rates_of(const Config& config) {
  Rates rates{config.schedule, config.optimizer.lr};
  if (rates.schedule.steps == 0) rates.schedule.steps = config.training.steps;
  return rates;
}

Rates saved_rates(const json& saved) {
  Config config;
  try {
    for (Section& section : describe(config)) {
      if (!saved.contains(section.name)) continue;
      for (Field& field : section.fields) {
        const std::string path = section.path(field);
        if (section.name != "schedule" && path != "optimizer.lr" && path != "training.steps")
          continue;
        const auto found = saved.at(section.name).find(field.name);
        if (found != saved.at(section.name).end()) std::visit(FromJson{*found}, field.value);
      }
    }
  } catch (const json::exception& error) {
    fail_user("train", "the manifest's configuration cannot be read: {}", error.what());
  }
  return rates_of(config);
}

std::optional<std::string> rate_change(const Rates& saved, const Rates& now, int64_t step,
                                       int64_t last) {
  // Schedules that agree wherever one of them bends agree everywhere.
  std::set<int64_t> steps = {step + 1, last};
  for (const Rates* rates : {&saved, &now})
    for (const int64_t bend : {rates->schedule.warmup_steps, rates->schedule.steps})
      for (const int64_t near : {bend, bend + 1})
        if (near > step && near < last) steps.insert(near);
  for (const int64_t at : steps) {
    if (at <= step || at > last || saved.at(at) == now.at(at)) continue;
    return fmt::format(
        "the learning rate of step {} is {:.3e}; the saved run would have had {:.3e} (schedule."
        "steps {}, now {}; optimizer.lr {:.3e}, now {:.3e})",
        at, now.at(at), saved.at(at), saved.schedule.steps, now.schedule.steps, saved.peak,
        now.peak);
  }
  return std::nullopt;
}

}  // namespace tessera
