#pragma once

#include <filesystem>
#include <iosfwd>

namespace tessera {

// A table of what a step folder holds: step, samples, mesh, files, states, tensors, bytes; and with
// `verify` the result of checking every checksum.
void inspect(const std::filesystem::path& step_dir, bool verify, std::ostream& out);

}  // namespace tessera
