#pragma once

#include "parallel/comm/core/communicator.h"

namespace tessera {

// While it lives, operations that this thread starts in any group wait for others as long as file
// work may take (communication.file_timeout), because one of them may still read or write files.
// Other threads of the rank are not concerned: a checkpoint that is written beside training leaves
// the steps their usual limit. If only some ranks work on files, all must meet (in a collective)
// before this object goes: operations that are started later have the usual limit again.
class FileWork {
 public:
  FileWork();
  ~FileWork();
  FileWork(const FileWork&) = delete;
  FileWork& operator=(const FileWork&) = delete;

  // Whether one lives in this thread.
  static bool in_progress();
};

// Returns when all ranks have finished their file work. Collective.
void meet_after_file_work(Communicator& world);

}  // namespace tessera
