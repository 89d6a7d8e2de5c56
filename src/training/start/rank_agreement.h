#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "config/config.h"
#include "parallel/comm/core/communicator.h"

namespace tessera {

// Every rank opens the files of a run by itself, by the same names. But a name may stand for
// another file on another node (a stale copy on its own disk) or in another working folder. Ranks
// with different files would hang, or train something that nobody asked for; these functions find
// that out.

// Something that a rank has read.
struct Sight {
  std::string what;            // a key, such as "data.train"
  std::string identity;        // equal for equal contents: the value's text, a fingerprint
  std::filesystem::path path;  // the file or folder; empty: it is the configuration's value itself
};

// A Sight for every key of a configuration, and one for the contents of the file model.config.
std::vector<Sight> sights_of(const Config& config);

// UserError, the same on all ranks, that names rank, host and path if a rank has read something
// else than rank 0. Where all agree, 8 bytes a rank travel. Collective.
void check_same_on_all_ranks(const std::vector<Sight>& sights, Communicator& world);

// Runs `read`, which reads files, on every rank. If it throws on one, all ranks throw its error,
// which names rank, host and working folder. Collective.
void read_on_all_ranks(Communicator& world, const std::function<void()>& read);

// UserError on all ranks if a rank does not see a file that rank 0 writes into `folder`, or has no
// permission to write there. Collective.
void check_shared_folder(const std::filesystem::path& folder, Communicator& world);

}  // namespace tessera
