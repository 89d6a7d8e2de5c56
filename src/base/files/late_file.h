#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>

namespace tessera {

// How long to wait for what another process is known to have written.
inline constexpr std::chrono::milliseconds kLateFileLimit{30000};

// On a network file system a node may see late what another node has written: not at all at first,
// or with an old size. Waits until `path` names something, with `size` given: a regular file of so
// many bytes. False if that is not so after `limit`; a limit of 0 looks once. Error if the path
// cannot be looked at (permission).
bool wait_until_visible(const std::filesystem::path& path,
                        std::optional<int64_t> size = std::nullopt,
                        std::chrono::milliseconds limit = kLateFileLimit);

}  // namespace tessera
