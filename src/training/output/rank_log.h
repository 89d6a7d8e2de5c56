#pragma once

#include <filesystem>
#include <string>

namespace tessera {

// Adds a line, with the time in front, to RUN/logs/start-0004/rank-00003.log: the errors of one
// rank in one start. A start of thousands of ranks makes no files on the shared file
// system for it: folder and file are made when something is written. Throws nothing: the words are
// on standard error as well.
void write_rank_log(const std::filesystem::path& run_dir, int64_t start, int rank,
                    const std::string& text) noexcept;

}  // namespace tessera
