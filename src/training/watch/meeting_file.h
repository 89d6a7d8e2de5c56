#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

// By what the other ranks find rank 0 before MPI runs: a small file in a folder that all share.
// Both sides know only from the file what each says first, so that neither takes a stranger on a
// port that was used before for the other.
struct MeetingFile {
  std::string question, answer;
  std::string host;  // rank 0's name
  std::vector<std::string> addresses;
  int port = 0;
};

// RUN/logs/.watch-ID
std::filesystem::path meeting_path(const std::filesystem::path& folder, const std::string& id);

// Writes the file, for this user's eyes alone, and removes those that killed starts have left a day
// ago or longer. Error if it cannot be written.
void write_meeting_file(const std::filesystem::path& path, const MeetingFile& file);

// nullopt: it is not there yet, or not readable.
std::optional<MeetingFile> read_meeting_file(const std::filesystem::path& path);

}  // namespace tessera
