#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>

namespace tessera {

class AbortState;
class CommRecord;
class RankNames;
struct Operation;

enum class ReduceOp { kSum, kMax, kMin };

// A collective that has been started. Destroying it without waiting is allowed: the operation still
// runs, and the communicator keeps its tensors alive until it is done.
class Work {
 public:
  class State {
   public:
    virtual ~State() = default;
    virtual void block() = 0;  // returns when done; throws what the operation threw
    virtual void wait() { block(); }
    virtual bool done() const = 0;
    virtual double seconds() const { return 0.0; }
  };

  Work() = default;  // already done
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  // Orders the caller's current stream after the operation; the host does not wait. On CPU tensors
  // it waits: the host is their stream. Throws if the operation is known to have failed.
  void wait() {
    if (state_) state_->wait();
  }
  // Waits on the host. Throws if the operation failed, timed out or was aborted.
  void block() {
    if (state_) state_->block();
  }
  bool done() const { return !state_ || state_->done(); }
  // Seconds that the operation ran, once it is done. They include the wait for other ranks, but not
  // the wait for earlier operations of the group. 0 where the backend does not know, and for an
  // operation that was done at once.
  double seconds() const { return state_ ? state_->seconds() : 0.0; }

 private:
  std::shared_ptr<State> state_;
};

// A group of ranks that communicate. Operations of one communicator run in the order in which they
// are started, asynchronously to the caller; every rank of the group starts the same sequence.
// Operations of different communicators may overlap. A communicator is used by one thread at a
// time.
//
// Tensors are contiguous tensors of fp64, fp32, bf16, fp16, int64, int32 or uint8, on the CPU or,
// where the backend has one, on device(); counts and dtypes come from them. Neither inputs nor
// outputs may be touched until the Work is done. Reductions of CPU tensors add up in fixed rank
// order, bf16/fp16 in fp32 with one rounding at the end, so results are bitwise the same on all
// ranks and in every run; those of a GPU see nccl_communicator.h.
//
// Errors: UserError never; Error when arguments do not fit (message names both numbers), when a
// peer failed (abort), or when a wait exceeds the time-out.
class Communicator {
 public:
  virtual ~Communicator() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }

  // The number in the world of a rank of this group, the name of the host that it runs on (empty:
  // unknown), and both for messages: "rank 3 (n2)".
  int world_rank(int rank) const;
  const std::string& host_of(int rank) const;
  std::string rank_text(int rank) const;
  const std::shared_ptr<const RankNames>& rank_names() const { return ranks_; }

  // The device whose tensors can travel besides the CPU's.
  virtual at::Device device() const { return at::kCPU; }

  // Whether all ranks share one node's memory. Found when the group was made; does not communicate.
  virtual bool on_one_node() const { return true; }

  // out [size * n] <- concatenation of every rank's in [n]. `in` may be out's own slice (in place).
  Work all_gather(at::Tensor out, at::Tensor in);

  // out [n] <- sum over ranks of their in's slice number rank(); in [size * n].
  // out is of in's dtype, or fp32 where in is bf16/fp16 (half the bytes of an fp32 reduction and
  // exactly its result, since the inputs are halves anyway). out may be in's own slice if dtypes
  // agree.
  Work reduce_scatter(at::Tensor out, at::Tensor in);

  // tensor <- reduction over ranks, in place.
  Work all_reduce(at::Tensor tensor, ReduceOp op);

  // tensor <- root's tensor.
  Work broadcast(at::Tensor tensor, int root);

  // out slice i <- rank i's in slice rank(); both [size * n], not overlapping.
  Work all_to_all(at::Tensor out, at::Tensor in);

  // Point to point; a send matches the receiver's next recv from that rank. On CPU tensors a send
  // is done when the receiver has taken the last byte, and until then nothing else of this
  // communicator runs: two ranks that both start with a send to the other wait for ever (to the
  // time-out). One of them receives first.
  Work send(at::Tensor tensor, int destination);
  Work recv(at::Tensor tensor, int source);

  // Done when every rank has started it.
  Work barrier();

  // All operations above end in this call. `op` was made by a function of operation.h, for this
  // group or for another with the same size and rank: a communicator that wraps another one hands
  // operations on as it got them, with the addresses and the limit of waiting
  // (Operation::file_work) of the first caller.
  virtual Work start(Operation op) = 0;

  // Collective: ranks of equal color form a new group, ordered by key. Each call makes its own
  // queue, so two splits with the same arguments give two groups whose operations can overlap.
  virtual std::unique_ptr<Communicator> split(int color, int key, std::string name) = 0;

  // Collective: the same ranks as a group of their own, for tensors of the CPU alone. For another
  // thread, which can then communicate beside this group's.
  virtual std::unique_ptr<Communicator> host_group(std::string name) {
    return split(0, rank(), std::move(name));
  }

  // Ends every pending and later operation of this world with an error that holds `reason`, on all
  // ranks that can be reached, without waiting for anyone. Safe to call from any thread.
  virtual void abort(const std::string& reason) = 0;

  // The flag that abort() raises, for backends that stand on this one.
  virtual const std::shared_ptr<AbortState>& abort_state() const = 0;

  // What all groups of this world do, on this rank.
  virtual const std::shared_ptr<CommRecord>& record() const = 0;

 protected:
  // `ranks`: null for a world whose hosts are not known.
  Communicator(int rank, int size, std::string name,
               std::shared_ptr<const RankNames> ranks = nullptr);

 private:
  int rank_;
  int size_;
  std::string name_;
  std::shared_ptr<const RankNames> ranks_;
};

}  // namespace tessera
