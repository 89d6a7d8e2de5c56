#pragma once

#include "parallel/comm/core/abort_state.h"
#include "parallel/comm/core/communicator.h"

namespace tessera {

// While it lives, operations that this rank starts in any group of the world wait for others as
// long as file work may take (communication.file_timeout), because one of them may still read or
// write files. If only some ranks work on files, all must meet (in a collective) before this object
// goes: operations that are started later have the usual limit again.
class FileWork {
 public:
  explicit FileWork(const Communicator& world) : state_(world.abort_state()) {
    state_->begin_file_work();
  }
  ~FileWork() { state_->end_file_work(); }
  FileWork(const FileWork&) = delete;
  FileWork& operator=(const FileWork&) = delete;

 private:
  std::shared_ptr<AbortState> state_;
};

// Returns when all ranks have finished their file work. Collective.
inline void meet_after_file_work(Communicator& world) {
  const FileWork file_work(world);
  world.barrier().block();
}

}  // namespace tessera
