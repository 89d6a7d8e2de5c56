#pragma once

#include <mpi.h>

#include <memory>
#include <mutex>
#include <vector>

namespace tessera {

// MPI communicators and windows of a run. MPI_Win_free and MPI_Comm_free are collective: a rank
// that destroys its objects in another order, or while it unwinds, would block in them. So they are
// collected here and freed together, in order of creation, when MPI ends in an orderly way.
class MpiResources {
 public:
  void add(MPI_Comm comm);
  void add(MPI_Win window);
  // Everything that uses MPI objects holds a copy, also a worker thread that was left behind after
  // a failure: free_all() sees from the copies that something is in use.
  std::shared_ptr<void> lease() const { return lease_; }

  // Collective over MPI_COMM_WORLD; frees nothing if something is in use on any rank.
  void free_all();

 private:
  struct Entry {
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Win window = MPI_WIN_NULL;
  };
  std::mutex mutex_;
  std::vector<Entry> entries_;
  std::shared_ptr<void> lease_ = std::make_shared<int>(0);
};

// Throws Error with MPI's own text unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call);

}  // namespace tessera
