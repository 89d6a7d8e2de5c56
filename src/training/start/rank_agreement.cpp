#include "training/start/rank_agreement.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "base/error.h"
#include "base/error_kinds.h"
#include "base/files/files.h"
#include "base/files/late_file.h"
#include "base/process/host_name.h"
#include "base/xxh3.h"
#include "config/save.h"
#include "parallel/comm/core/agreement.h"

namespace tessera {
namespace {

using nlohmann::json;

std::string working_folder() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::current_path(error);
  return error ? "unknown" : folder.string();
}

std::string absolute_text(const std::filesystem::path& path) {
  if (path.empty()) return "";
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path.string() : absolute.lexically_normal().string();
}

// How names of the files begin that check_shared_folder() makes; a killed start may leave one.
constexpr const char* kMark = ".ranks-";

void remove_marks(const std::filesystem::path& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (entry.path().filename().string().starts_with(kMark))
      std::filesystem::remove(entry.path(), ignored);
}

// The first difference from rank 0's sights, as the message of the error; empty if there is none.
std::string difference(const std::vector<Sight>& sights, const json& rank_0, int rank) {
  const json& theirs = rank_0.at("sights");
  const std::string there = rank_0.at("host").get<std::string>();
  for (size_t i = 0; i < std::max(sights.size(), theirs.size()); ++i) {
    const json other = i < theirs.size() ? theirs[i] : json({"", "nothing", ""});
    const auto text = [&](size_t part) { return other[part].get<std::string>(); };
    const Sight own = i < sights.size() ? sights[i] : Sight{text(0), "nothing", text(2)};
    if (text(0) == own.what && text(1) == own.identity) continue;
    if (own.path.empty())
      return fmt::format(
          "[config] rank {} has read another configuration than rank 0: {}: {} on its host {}, {} "
          "on {}; give all ranks the same file and arguments",
          rank, own.what, own.identity, host_name(), text(1), there);
    return fmt::format(
        "[train] rank {} sees another {} than rank 0:\n"
        "  rank {} on host {}: {}: {}\n"
        "  rank 0 on host {}: {}: {}\n"
        "give all ranks the same files, on a file system that all nodes share or as equal copies",
        rank, own.what, rank, host_name(), absolute_text(own.path), own.identity, there, text(2),
        text(1));
  }
  return "";
}

}  // namespace

std::vector<Sight> sights_of(const Config& config) {
  std::vector<Sight> sights;
  const json all = to_json(config);
  for (const auto& [name, section] : all.items()) {
    if (!section.is_object())
      sights.push_back({name, section.dump(), {}});
    else
      for (const auto& [key, value] : section.items())
        sights.push_back({fmt::format("{}.{}", name, key), value.dump(), {}});
  }
  // The file's other fields are no keys of the model, but go into checkpoints and exports.
  const std::string file = config.model.source().dump();
  sights.push_back({"the contents of model.config", xxh3_hex(file.data(), file.size()), {}});
  return sights;
}

void check_same_on_all_ranks(const std::vector<Sight>& sights, Communicator& world) {
  json contents = json::array(), rows = json::array();
  for (const Sight& sight : sights) {
    contents.push_back({sight.what, sight.identity});
    rows.push_back({sight.what, sight.identity, absolute_text(sight.path)});
  }
  if (same_on_all_ranks(world, contents.dump())) return;
  const json own = {{"host", host_name()}, {"sights", std::move(rows)}};
  const json rank_0 = json::parse(text_of_rank_0(world, own.dump()));
  const std::vector<std::string> messages =
      gather_messages(world, difference(sights, rank_0, world.rank()));
  for (size_t rank = 0; rank < messages.size(); ++rank)
    if (!messages[rank].empty())
      throw_on_all_ranks<UserError>(messages[rank], static_cast<int>(rank));
  fail("train", "ranks have read different things, and none can say which");
}

void read_on_all_ranks(Communicator& world, const std::function<void()>& read) {
  const auto here = [&](const std::exception& error) {
    if (world.size() == 1) return std::string(error.what());
    return fmt::format("{}; host {}, working folder {}", error.what(), host_name(),
                       working_folder());
  };
  agree(world, [&] {
    try {
      read();
    } catch (const DamagedError& error) {
      throw DamagedError(here(error));
    } catch (const UserError& error) {
      throw UserError(here(error));
    } catch (const Error& error) {
      throw Error(here(error));
    }
    return std::string();
  });
}

void check_shared_folder(const std::filesystem::path& folder, Communicator& world) {
  if (world.size() == 1) return;
  // A new name each time, so that no node has cached that it is not there.
  const std::string name = agree(world, [&]() -> std::string {
    if (world.rank() != 0) return "";
    remove_marks(folder);
    std::random_device random;
    const std::string made = fmt::format("{}{:08x}{:08x}", kMark, random(), random());
    File::create(folder / made).close();
    return made;
  })[0];
  const std::filesystem::path mark = folder / name;
  read_on_all_ranks(world, [&] {
    if (!wait_until_visible(mark, std::nullopt, std::chrono::seconds(2)))
      fail_user("train",
                "a file that rank 0 has just written into the run folder is not there: {}; run.dir "
                "must be a folder that all ranks share, an absolute path on a file system of all "
                "nodes",
                absolute_text(mark));
    if (::access(folder.c_str(), W_OK) != 0)
      fail_user("train", "cannot write to the run folder {}: {}; give another run.dir",
                absolute_text(folder), std::strerror(errno));
  });
  if (world.rank() == 0) remove_marks(folder);
}

}  // namespace tessera
