#include "training/loop/owed_validation.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/files/files.h"
#include "parallel/comm/core/agreement.h"

namespace tessera {
namespace {

// Whether metrics.jsonl has the line of the validation of `step`. A last line without its newline
// does not count: a kill has torn it.
bool has_validation(const std::filesystem::path& metrics, int64_t step) {
  std::ifstream in(metrics);
  for (std::string line; std::getline(in, line);) {
    if (line.find("\"eval_loss\"") == std::string::npos) continue;
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.value("step", int64_t{-1}) == step && !in.eof()) return true;
  }
  return false;
}

}  // namespace

OwedValidation::OwedValidation(const std::filesystem::path& run_dir, bool root)
    : path_(run_dir / "owed-validation.json"), metrics_(run_dir / "metrics.jsonl"), root_(root) {}

void OwedValidation::find(int64_t step, bool can_validate, Communicator& world,
                          const std::function<void(const std::string&)>& warn) {
  const auto answers = agree(world, [&]() -> std::string {
    if (!root_) return "";
    const bool owed = step > 0 && is_owed(step);
    if (owed && can_validate) return "owed";
    if (owed)
      warn(
          fmt::format("the validation of step {} was not made, and cannot be made up: eval.every "
                      "is 0 now",
                      step));
    remove_note();
    return "";
  });
  owed_ = !answers[0].empty();
}

std::optional<int64_t> OwedValidation::noted_step() const {
  if (type_of(path_) == std::filesystem::file_type::not_found) return std::nullopt;
  const std::string text = read_small_file(path_, 1000);
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer())
    fail_user("train",
              "{} holds '{}'; the rule is {{\"step\": N}}, the step whose validation is still to "
              "be made; remove the file if there is none",
              path_.string(), text);
  return json["step"].get<int64_t>();
}

bool OwedValidation::is_owed(int64_t step) const {
  return noted_step() == step && !has_validation(metrics_, step);
}

void OwedValidation::note(int64_t step) {
  if (!root_ || !owed_) return;
  write_file_atomic(path_, fmt::format("{{\"step\": {}}}\n", step));
  if (!owed_) remove_note();  // made meanwhile, and clear() may have come before the file
}

void OwedValidation::clear() {
  owed_ = false;
  if (root_) remove_note();
}

void OwedValidation::remove_note() {
  // A note that cannot be removed does no harm: is_owed() finds the validation's line.
  std::error_code ignored;
  if (std::filesystem::remove(path_, ignored)) sync_folder(folder_of(path_));
}

}  // namespace tessera
