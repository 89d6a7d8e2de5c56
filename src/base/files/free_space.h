#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace tessera {

// The bytes that this user may still write where `path` lies, as the file system tells; nullopt if
// it does not.
std::optional<int64_t> free_bytes(const std::filesystem::path& path);

}  // namespace tessera
