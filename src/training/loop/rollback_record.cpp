#include "training/loop/rollback_record.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/files/files.h"
#include "base/text/json_text.h"
#include "base/xxh3.h"
#include "parallel/comm/core/agreement.h"

namespace tessera {
namespace {

using nlohmann::json;

constexpr const char* kFile = "rollback.json";
constexpr int kVersion = 1;
constexpr int64_t kMaxBytes = int64_t{64} << 20;

std::string digest_of(json record) {
  record.erase("xxh3");
  const std::string text = record.dump();
  return xxh3_hex(text.data(), text.size());
}

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& why) {
  fail_user("train",
            "{} cannot be used: {}; it says which samples rollbacks have left out. Bring it back, "
            "or remove it, and the run meets those samples again",
            file.string(), why);
}

// The record as it was written, or nothing where there is none.
json read_record(const std::filesystem::path& file) {
  std::error_code error;
  const auto type = std::filesystem::status(file, error).type();
  if (type == std::filesystem::file_type::not_found) return nullptr;
  json record;
  try {
    record = parse_json(read_small_file(file, kMaxBytes), file.string());
  } catch (const Error& failure) {
    refuse(file, failure.what());
  }
  if (!record.is_object() || record.value("format", json()) != "tessera-rollback")
    refuse(file, "it is no record of rollbacks");
  if (record.value("version", json()) != kVersion)
    refuse(file, fmt::format("its version is {}, this program reads {}",
                             record.value("version", json()).dump(), kVersion));
  if (record.value("xxh3", json()) != digest_of(record))
    refuse(file, "its checksum is not that of its contents; it is damaged or was edited");
  return record;
}

}  // namespace

std::string order_of(uint64_t seed, const json& data, const json& config) {
  const json::json_pointer seq_len("/data/seq_len");
  const json cut = config.is_object() ? config.value(seq_len, json()) : json();
  const std::string text = json{seed, data, cut}.dump();
  return xxh3_hex(text.data(), text.size());
}

void write_rollback_record(const std::filesystem::path& checkpoint_dir, const Progress& progress,
                           const std::string& order, Communicator& world) {
  agree(world, [&] {
    if (world.rank() != 0) return std::string();
    json record = {{"format", "tessera-rollback"},
                   {"version", kVersion},
                   {"rollbacks", progress.rollbacks},
                   {"back_to", progress.step},
                   {"failed_step", progress.last_failed_step},
                   {"failures_in_a_row", progress.failures_in_a_row},
                   {"order", order},
                   {"skipped_samples", to_json(progress.skipped)}};
    record["xxh3"] = digest_of(record);
    write_file_atomic(checkpoint_dir / kFile, record.dump(2) + "\n");
    return std::string();
  });
}

void take_rollback_record(const std::filesystem::path& checkpoint_dir, const std::string& order,
                          Progress& progress, Communicator& world, Console& console) {
  const std::filesystem::path file = checkpoint_dir / kFile;
  const std::string text =
      agree(world, [&] { return world.rank() == 0 ? read_record(file).dump() : std::string(); })[0];
  const json record = json::parse(text);
  if (record.is_null()) return;
  try {
    if (record.at("rollbacks").get<int64_t>() <= progress.rollbacks) return;  // it knows them
    progress.rollbacks = record.at("rollbacks").get<int64_t>();
    progress.failures_in_a_row = record.at("failures_in_a_row").get<int64_t>();
    progress.last_failed_step = record.at("failed_step").get<int64_t>();
    const auto skipped = ranges_of(record.at("skipped_samples"), file.string());
    if (record.at("order") != order) {
      console.warn(
          fmt::format("{} names samples of another order, that of another seed or other data; none "
                      "is left out for it",
                      file.string()));
      return;
    }
    for (const SampleRange& range : skipped) add_range(progress.skipped, range);
  } catch (const json::exception& error) {
    refuse(file, error.what());
  }
  console.line(
      fmt::format("{} rollbacks so far, the last from step {}: their samples stay left out ({})",
                  progress.rollbacks, progress.last_failed_step, file.string()));
}

void set_rollback_record_aside(const std::filesystem::path& checkpoint_dir,
                               const std::optional<std::filesystem::path>& start,
                               Communicator& world, Console& console) {
  const std::string moved = agree(world, [&]() -> std::string {
    const std::filesystem::path file = checkpoint_dir / kFile;
    std::error_code ignored;
    if (world.rank() != 0 || !std::filesystem::exists(file, ignored)) return "";
    if (start && std::filesystem::equivalent(folder_of(*start), checkpoint_dir, ignored)) return "";
    const std::filesystem::path target = fmt::format("{}.old", file.string());
    rename_path(file, target);
    return target.string();
  })[0];
  if (!moved.empty())
    console.warn(
        fmt::format("a record of rollbacks lay there from a run that is gone; moved to {}", moved));
}

}  // namespace tessera
