#include "checkpoint/store/retention.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace tessera {
namespace {

// Newest first.
std::vector<int64_t> by_age(const SavedSteps& saved) {
  std::vector<int64_t> steps = saved.whole;
  std::sort(steps.begin(), steps.end(), [&](int64_t a, int64_t b) {
    const bool a_last = a == saved.just_saved, b_last = b == saved.just_saved;
    return a_last != b_last ? a_last : a > b;
  });
  return steps;
}

// Best first; only those whose loss is known and finite.
std::vector<int64_t> by_loss(const SavedSteps& saved) {
  std::vector<std::pair<double, int64_t>> order;  // of equal losses the newer comes first
  for (const int64_t step : saved.whole)
    if (const auto loss = saved.losses.find(step);
        loss != saved.losses.end() && std::isfinite(loss->second))
      order.emplace_back(loss->second, -step);
  std::sort(order.begin(), order.end());
  std::vector<int64_t> steps;
  for (const auto& [loss, minus_step] : order) steps.push_back(-minus_step);
  return steps;
}

void keep_first(const std::vector<int64_t>& steps, int count, std::set<int64_t>& kept) {
  const auto number = std::min(steps.size(), static_cast<size_t>(count));
  kept.insert(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(number));
}

}  // namespace

std::vector<int64_t> steps_to_retire(const RetentionRules& rules, const SavedSteps& saved) {
  if (rules.keep == 0) return {};
  std::set<int64_t> kept;
  keep_first(by_age(saved), rules.keep, kept);
  if (rules.keep_best > 0) keep_first(by_loss(saved), rules.keep_best, kept);
  for (const auto& step : {saved.just_saved, saved.just_loaded})
    if (step) kept.insert(*step);
  std::vector<int64_t> retired;
  for (const int64_t step : saved.whole) {
    const bool for_ever = rules.keep_every > 0 && step % rules.keep_every == 0;
    if (!for_ever && !kept.contains(step)) retired.push_back(step);
  }
  std::sort(retired.begin(), retired.end());
  return retired;
}

}  // namespace tessera
