#include "checkpoint/store/validation_losses.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/files/files.h"
#include "base/text/error_text.h"
#include "base/text/json_text.h"

namespace tessera {
namespace {

using nlohmann::json;
using Losses = std::map<int64_t, double>;

constexpr int64_t kMaxBytes = int64_t{256} << 20;

Losses losses_of(const json& record) {
  if (!record.is_object() || !record.contains("losses") || !record["losses"].is_object())
    fail("checkpoint", "it has no object 'losses'");
  Losses losses;
  for (const auto& [name, loss] : record["losses"].items()) {
    int64_t step = -1;
    const char* const end = name.data() + name.size();
    const auto [at, error] = std::from_chars(name.data(), end, step);
    if (error != std::errc() || at != end || step < 0 || !loss.is_number())
      fail("checkpoint", "'{}': {} is no loss of a step", name, loss.dump());
    losses[step] = loss.get<double>();
  }
  return losses;
}

void write_losses(const std::filesystem::path& dir, const Losses& losses) {
  std::string lines;  // in the order of numbers; each loss with all its bits
  for (const auto& [step, loss] : losses)
    lines += fmt::format("{}\n    \"{}\": {}", lines.empty() ? "" : ",", step, loss);
  write_file_atomic(dir / kValidationFile,
                    fmt::format("{{\n  \"losses\": {{{}\n  }}\n}}\n", lines));
}

}  // namespace

Losses read_validation_losses(const std::filesystem::path& dir) {
  const std::filesystem::path file = dir / kValidationFile;
  if (type_of(file) == std::filesystem::file_type::not_found) return {};
  const std::string text = read_small_file(file, kMaxBytes);
  try {
    return losses_of(parse_json(text, file.string()));
  } catch (const Error& failure) {
    fail_user("checkpoint",
              "{} cannot be used: {}; it says which checkpoints are the best. Bring it back, or "
              "remove it, and of the checkpoints that are there none counts as one of the best",
              file.string(), without_subsystem(failure.what()));
  }
}

void record_validation_loss(const std::filesystem::path& dir, int64_t step, double loss) {
  Losses losses = read_validation_losses(dir);
  losses.erase(step);
  if (std::isfinite(loss)) losses[step] = loss;
  write_losses(dir, losses);
}

void forget_validation_losses(const std::filesystem::path& dir, int64_t step) {
  Losses losses = read_validation_losses(dir);
  if (losses.empty() || losses.rbegin()->first <= step) return;
  losses.erase(losses.upper_bound(step), losses.end());
  write_losses(dir, losses);
}

}  // namespace tessera
