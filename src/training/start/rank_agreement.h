#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "config/config.h"
#include "parallel/comm/core/communicator.h"

namespace tessera {

// Ranks read the same names each for itself, and a name may stand for something else on another
// node (a stale copy on its own disk) or in another working folder. Such ranks would hang, or train
// something that nobody asked for.

// Something that a rank has read.
struct Sight {
  std::string what;            // a key, such as "data.train"
  std::string identity;        // equal for equal contents: the value's text, a fingerprint
  std::filesystem::path path;  // the file or folder; empty: it is the configuration's value itself
};

// Every key of a configuration, and what the file of model.config says besides.
std::vector<Sight> sights_of(const Config& config);

// UserError, the same on all ranks, that names rank, host and path if a rank has read something
// else than rank 0. Where all agree, 8 bytes a rank travel. Collective.
void check_same_on_all_ranks(const std::vector<Sight>& sights, Communicator& world);

// Reads files on every rank; an error of one is everyone's, and names rank, host and working
// folder. Collective.
void read_on_all_ranks(Communicator& world, const std::function<void()>& read);

// UserError as above if a rank does not see in `folder` what rank 0 writes there, or may not write
// itself. Collective.
void check_shared_folder(const std::filesystem::path& folder, Communicator& world);

}  // namespace tessera
