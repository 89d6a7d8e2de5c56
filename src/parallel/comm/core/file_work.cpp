#include "parallel/comm/core/file_work.h"

namespace tessera {
namespace {

thread_local int depth = 0;  // FileWork objects of this thread

}  // namespace

FileWork::FileWork() {
  ++depth;
}

FileWork::~FileWork() {
  --depth;
}

bool FileWork::in_progress() {
  return depth > 0;
}

void meet_after_file_work(Communicator& world) {
  const FileWork file_work;
  world.barrier().block();
}

}  // namespace tessera
