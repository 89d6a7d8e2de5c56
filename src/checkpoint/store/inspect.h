#pragma once

#include <filesystem>
#include <iosfwd>
#include <nlohmann/json.hpp>

namespace tessera {

// What a step folder holds: step, samples, mesh, files, states, tensors, bytes. Manifest and
// headers are checked, the data is not. As a table, or as one JSON object.
void inspect(const std::filesystem::path& step_dir, std::ostream& out);
nlohmann::ordered_json inspect_json(const std::filesystem::path& step_dir);

}  // namespace tessera
