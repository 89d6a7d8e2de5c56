#pragma once

#include <filesystem>
#include <string>

namespace tessera {

// What keeps a folder from being one that a tool wrote and nothing else, so that no tool may put
// another in its place (Replace, store/whole_folder.h). Empty: nothing does.

// A step folder has a manifest that can be read, and only the files that the manifest names and
// those that were carried along (hf_files.h).
std::string why_no_step_folder(const std::filesystem::path& folder);

// An export has weights whose headers name this program as their writer (kWrittenBy), and only
// files that exports have. A model that was downloaded is none, nor is an export to which somebody
// has added a file.
std::string why_no_export(const std::filesystem::path& folder);

// The key of __metadata__ by which an export's files are known; its value is this program's name
// and version.
inline constexpr const char* kWrittenBy = "written_by";

}  // namespace tessera
