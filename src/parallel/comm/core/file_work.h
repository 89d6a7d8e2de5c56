#pragma once

#include "parallel/comm/core/abort_state.h"
#include "parallel/comm/core/communicator.h"

namespace tessera {

// While it lives, operations that this rank starts in any group of the world wait for others as
// long as file work may take (communication.file_timeout), because one of them may be in the middle
// of it. Work that some ranks do alone must end in a meeting within this scope: what is started
// later has the usual limit again.
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

// All ranks have come from their file work. Collective.
inline void meet_after_file_work(Communicator& world) {
  const FileWork file_work(world);
  world.barrier().block();
}

}  // namespace tessera
