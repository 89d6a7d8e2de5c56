#pragma once

// Cases in which an operation fails, for backends of several ranks. Each takes a world of its own,
// which is unusable afterwards.

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "parallel/comm/cases.h"
#include "parallel/comm/core/checked_communicator.h"
#include "parallel/comm/core/file_work.h"

namespace tessera::testing {

// Ranks call different things; all of them get the same message. Returns it.
inline std::string mismatch_case(Communicator& checked) {
  const auto tensor = at::zeros({checked.rank() == 1 ? 5 : 4}, at::kFloat);
  checked.barrier().wait();
  const std::string text = error_of([&] { checked.all_reduce(tensor, ReduceOp::kSum).wait(); });
  const std::string usual = " called all_reduce(sum, Float, 4 elements) as collective #2";
  const std::string odd =
      checked.rank_text(1) + " called all_reduce(sum, Float, 5 elements) as collective #2";
  if (checked.size() == 2)
    expect_contains(text, "ranks disagree: " + checked.rank_text(0) + usual + "; " + odd + "; all");
  else
    expect_contains(text, "ranks disagree: " + odd + "; the others" + usual + "; all ranks must");
  // Out of step: nothing works any more, and says why.
  expect_contains(error_of([&] { checked.barrier().wait(); }), "ranks disagree");
  return text;
}

// One rank calls another collective, one that is otherwise alike.
inline void wrong_operation_case(Communicator& checked) {
  const auto tensor = at::zeros({4}, at::kFloat);
  const std::string text = error_of([&] {
    if (checked.rank() == 0)
      checked.broadcast(tensor, 1).wait();
    else
      checked.all_reduce(tensor, ReduceOp::kMax).wait();
  });
  expect_contains(text, checked.rank_text(0) + " called broadcast(Float, 4 elements, root 1)");
  expect_contains(text, checked.rank_text(1) + " called all_reduce(max, Float, 4 elements)");
}

inline void wrong_pair_case(Communicator& checked) {
  if (checked.rank() > 1) return;
  const std::string text = error_of([&] {
    if (checked.rank() == 0)
      checked.send(at::zeros({4}, at::kFloat), 1).wait();
    else
      checked.recv(at::zeros({4}, at::kDouble), 0).wait();
  });
  expect_contains(text, checked.rank_text(0) + " called send(Float, 4 elements, to 1)");
  expect_contains(text, checked.rank_text(1) + " called recv(Double, 4 elements, from 0)");
}

// The last rank leaves a collective out: returns what the next one says, which for the last rank is
// of another kind. The ranks have met before, however late one of them was.
inline std::string left_out_case(Communicator& world) {
  const auto part = at::ones({8}, at::kFloat), all = at::ones({8 * world.size()}, at::kFloat);
  meet_after_file_work(world);
  if (world.rank() == world.size() - 1)
    return error_of([&] { world.all_reduce(part, ReduceOp::kMax).wait(); });
  return error_of([&] { world.all_gather(all, part).wait(); });
}

// The last rank gives another size, which its own memory allows.
inline std::string other_size_case(Communicator& world) {
  const auto tensor = at::ones({world.rank() == world.size() - 1 ? 3000 : 6000}, at::kFloat);
  meet_after_file_work(world);
  return error_of([&] { world.all_reduce(tensor, ReduceOp::kSum).wait(); });
}

// The last rank stays away; the others' wait ends and names it. `world` has a short time-out.
inline void timeout_case(Communicator& world) {
  const int absent = world.size() - 1;
  if (world.rank() == absent) return;
  world.barrier();  // never done
  const std::string text =
      error_of([&] { world.all_reduce(at::ones({100000}, at::kFloat), ReduceOp::kSum).wait(); });
  expect_contains(text, "barrier #1 on " + world.rank_text(world.rank()) + " timed out after");
  expect_contains(text, world.name());
}

inline void receive_timeout_case(Communicator& world) {
  if (world.rank() != 0) return;
  const std::string text = error_of([&] { world.recv(at::zeros({10}, at::kFloat), 1).wait(); });
  expect_contains(
      text, "recv(Float, 10 elements, from 1) #1 on " + world.rank_text(0) + " timed out after");
}

// The last rank is late by more than the usual limit of `world`, which has a short one: that is an
// error unless ranks are at work on files.
inline void late_case(Communicator& world) {
  const bool late = world.rank() + 1 == world.size();
  const auto dawdle = [] { std::this_thread::sleep_for(std::chrono::milliseconds(700)); };
  const auto part = world.split(0, world.rank(), "part");
  {
    const FileWork file_work;
    if (late) dawdle();
    at::Tensor sum = at::ones({10}, at::kFloat);
    part->all_reduce(sum, ReduceOp::kSum).block();
    EXPECT_EQ(sum[0].item<float>(), static_cast<float>(world.size()));
  }
  part->barrier().block();
  if (late)
    dawdle();
  else
    expect_contains(error_of([&] { part->barrier().block(); }), "timed out after 300 ms: ");
}

// Rank 0 aborts while the others wait: they wake long before their time-out of minutes.
inline void abort_case(Communicator& world) {
  if (world.rank() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    world.abort("the tests say so");
  }
  // On rank 0 this comes later than the abort, and fails as well.
  const auto text = error_of([&] { world.all_reduce(at::ones({10}), ReduceOp::kSum).wait(); });
  expect_contains(text, "on " + world.rank_text(world.rank()));
  expect_contains(text, "was aborted: the tests say so");
}

}  // namespace tessera::testing
