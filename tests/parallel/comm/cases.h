#pragma once

// Cases that every backend must pass, on any number of ranks. Each is called by all ranks of
// `world` and checks what this rank sees. Inputs are functions of rank and index, so every rank can
// compute what the others hold.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "parallel/comm/core/comm_record.h"
#include "parallel/comm/core/communicator.h"

namespace tessera::testing {

// Sizes of a slice: empty, one, odd, and around and beyond the windows that the tests use.
inline const std::vector<int64_t> kSizes{0, 1, 3, 63, 64, 65, 1000, 4099, 70001};
inline const std::vector<at::ScalarType> kDtypes{at::kDouble, at::kFloat, at::kBFloat16, at::kHalf,
                                                 at::kLong,   at::kInt,   at::kByte};

// A view of `numel` elements that starts `offset` elements into its storage.
inline at::Tensor at_offset(int64_t numel, at::ScalarType dtype, int64_t offset) {
  return at::zeros({numel + offset + 5}, dtype).narrow(0, offset, numel);
}

// Values of rank `rank`: multiples of 1/8 in [-8, 8), small non-negative integers for integers.
// With `rough`, floating-point values whose sums round.
inline void fill(const at::Tensor& tensor, int rank, bool rough = false) {
  const auto index = at::arange(tensor.numel(), at::kLong);
  if (at::isIntegralType(tensor.scalar_type(), false)) {
    tensor.copy_((index * 7 + rank * 13).remainder(31));
    return;
  }
  auto value = (index * 37 + rank * 29).remainder(128).to(at::kDouble).div(8).sub(8);
  if (rough) value = (value + 0.123 * (rank + 1)).sin().mul(1 + rank * 100.0);
  tensor.copy_(value);
}

inline at::Tensor filled(int64_t numel, at::ScalarType dtype, int rank, bool rough = false,
                         int64_t offset = 3) {
  auto tensor = at_offset(numel, dtype, offset);
  fill(tensor, rank, rough);
  return tensor;
}

// The sum in rank order, halves in fp32 with one rounding (or none, if `out` is fp32).
inline at::Tensor expected_sum(const std::vector<at::Tensor>& parts, at::ScalarType out) {
  const auto dtype = parts[0].scalar_type();
  const auto wide = dtype == at::kBFloat16 || dtype == at::kHalf ? at::kFloat : dtype;
  auto sum = parts[0].to(wide);
  for (size_t r = 1; r < parts.size(); ++r) sum = sum + parts[r].to(wide);
  return sum.to(out);
}

inline bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && at::equal(a, b);
}

inline std::string label(const char* what, at::ScalarType dtype, int64_t n) {
  return std::string(what) + " " + c10::toString(dtype) + " n=" + std::to_string(n);
}

// The message of the Error that `call` throws; empty if it throws none.
template <typename F>
std::string error_of(F&& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "' lacks '" << part << "'";
}

inline void all_gather_case(Communicator& world) {
  for (const auto dtype : kDtypes)
    for (const int64_t n : kSizes) {
      const auto in = filled(n, dtype, world.rank());
      const auto out = at_offset(n * world.size(), dtype, 1);
      world.all_gather(out, in).wait();
      const auto in_place = at_offset(n * world.size(), dtype, 1);
      fill(in_place.narrow(0, world.rank() * n, n), world.rank());
      world.all_gather(in_place, in_place.narrow(0, world.rank() * n, n)).wait();
      for (int r = 0; r < world.size(); ++r)
        EXPECT_TRUE(same(out.narrow(0, r * n, n), filled(n, dtype, r)))
            << label("all_gather", dtype, n) << " slice " << r;
      EXPECT_TRUE(same(in_place, out)) << label("all_gather in place", dtype, n);
    }
}

inline void reduce_scatter_case(Communicator& world) {
  const auto slice_of = [&](const at::Tensor& in, int64_t n) {
    return in.narrow(0, world.rank() * n, n);
  };
  for (const auto dtype : kDtypes)
    for (const int64_t n : kSizes) {
      std::vector<at::Tensor> parts;
      for (int r = 0; r < world.size(); ++r)
        parts.push_back(slice_of(filled(n * world.size(), dtype, r, true), n));
      const auto in = filled(n * world.size(), dtype, world.rank(), true);
      const auto out = at_offset(n, dtype, 2);
      world.reduce_scatter(out, in).wait();
      EXPECT_TRUE(same(out, expected_sum(parts, dtype))) << label("reduce_scatter", dtype, n);
      EXPECT_TRUE(same(in, filled(n * world.size(), dtype, world.rank(), true)))
          << label("reduce_scatter keeps its input", dtype, n);
      if (dtype == at::kBFloat16 || dtype == at::kHalf) {
        const auto wide = at_offset(n, at::kFloat, 2);
        world.reduce_scatter(wide, in).wait();
        EXPECT_TRUE(same(wide, expected_sum(parts, at::kFloat)))
            << label("reduce_scatter to fp32", dtype, n);
      }
      world.reduce_scatter(slice_of(in, n), in).wait();
      EXPECT_TRUE(same(slice_of(in, n), out)) << label("reduce_scatter in place", dtype, n);
    }
}

inline void all_reduce_case(Communicator& world) {
  for (const auto dtype : kDtypes)
    for (const int64_t n : kSizes) {
      std::vector<at::Tensor> parts;
      for (int r = 0; r < world.size(); ++r) parts.push_back(filled(n, dtype, r, true));
      auto max = parts[0], min = parts[0];
      for (const auto& part : parts) max = at::maximum(max, part), min = at::minimum(min, part);
      const auto sum = filled(n, dtype, world.rank(), true);
      world.all_reduce(sum, ReduceOp::kSum).wait();
      EXPECT_TRUE(same(sum, expected_sum(parts, dtype))) << label("all_reduce sum", dtype, n);
      const auto high = filled(n, dtype, world.rank(), true);
      world.all_reduce(high, ReduceOp::kMax).wait();
      EXPECT_TRUE(same(high, max)) << label("all_reduce max", dtype, n);
      const auto low = filled(n, dtype, world.rank(), true);
      world.all_reduce(low, ReduceOp::kMin).wait();
      EXPECT_TRUE(same(low, min)) << label("all_reduce min", dtype, n);
    }
  // Negative integers, and a NaN of one rank, which must reach all.
  const auto negative = at::full({5}, -world.rank() - 1, at::kLong);
  world.all_reduce(negative, ReduceOp::kMin).wait();
  EXPECT_TRUE(same(negative, at::full({5}, -world.size(), at::kLong)));
  for (const auto op : {ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kSum}) {
    const auto number = at::ones({3}, at::kFloat);
    if (world.rank() == world.size() - 1) number.fill_(std::numeric_limits<float>::quiet_NaN());
    world.all_reduce(number, op).wait();
    EXPECT_TRUE(number.isnan().all().item<bool>());
  }
}

inline void broadcast_case(Communicator& world) {
  for (const auto dtype : kDtypes)
    for (const int64_t n : kSizes)
      for (int root = 0; root < world.size(); ++root) {
        const auto tensor = filled(n, dtype, world.rank());
        world.broadcast(tensor, root).wait();
        EXPECT_TRUE(same(tensor, filled(n, dtype, root))) << label("broadcast", dtype, n);
      }
}

inline void all_to_all_case(Communicator& world) {
  for (const auto dtype : kDtypes)
    for (const int64_t n : kSizes) {
      const auto in = filled(n * world.size(), dtype, world.rank());
      const auto out = at_offset(n * world.size(), dtype, 1);
      world.all_to_all(out, in).wait();
      for (int r = 0; r < world.size(); ++r)
        EXPECT_TRUE(same(out.narrow(0, r * n, n),
                         filled(n * world.size(), dtype, r).narrow(0, world.rank() * n, n)))
            << label("all_to_all", dtype, n) << " slice " << r;
    }
}

// Around the ring, twice in a row to the same peer; even ranks send first.
inline void send_recv_case(Communicator& world) {
  if (world.size() == 1) return;
  const int next = (world.rank() + 1) % world.size();
  const int previous = (world.rank() + world.size() - 1) % world.size();
  for (const auto dtype : kDtypes)
    for (const int64_t n : kSizes) {
      const auto first = filled(n, dtype, world.rank()), second = filled(n, dtype, next + 10);
      const auto got_first = at_offset(n, dtype, 2), got_second = at_offset(n, dtype, 2);
      const auto sends = [&] {
        world.send(first, next);
        world.send(second, next).wait();
      };
      const auto receives = [&] {
        world.recv(got_first, previous);
        world.recv(got_second, previous).wait();
      };
      if (world.rank() % 2 == 0)
        sends(), receives();
      else
        receives(), sends();
      EXPECT_TRUE(same(got_first, filled(n, dtype, previous))) << label("recv", dtype, n);
      EXPECT_TRUE(same(got_second, filled(n, dtype, world.rank() + 10)))
          << label("second recv", dtype, n);
    }
}

// Rows and columns of a grid that is as square as the size allows: 2x2 on four ranks.
inline void split_case(Communicator& world) {
  const int columns = world.size() % 2 == 0 ? 2 : 1;
  const int row = world.rank() / columns, column = world.rank() % columns;
  const auto rows = world.split(row, column, "row");
  const auto cols = world.split(column, -row, "column");  // in descending order of rows
  EXPECT_EQ(rows->name(), "row");
  EXPECT_EQ(rows->size(), columns);
  EXPECT_EQ(rows->rank(), column);
  EXPECT_EQ(cols->size(), world.size() / columns);
  EXPECT_EQ(cols->rank(), world.size() / columns - 1 - row);
  const auto mine = at::full({1}, world.rank(), at::kLong);
  const auto in_row = at::zeros({rows->size()}, at::kLong);
  rows->all_gather(in_row, mine).wait();
  const auto in_column = at::zeros({cols->size()}, at::kLong);
  cols->all_gather(in_column, mine).wait();
  for (int i = 0; i < rows->size(); ++i) EXPECT_EQ(in_row[i].item<int64_t>(), row * columns + i);
  for (int i = 0; i < cols->size(); ++i)
    EXPECT_EQ(in_column[i].item<int64_t>(), (cols->size() - 1 - i) * columns + column);
  expect_contains(error_of([&] { world.split(-1, 0, "bad"); }), "color -1 is negative");
}

// A tensor whose storage another place can be given, as buckets' storage is.
struct MovableTensor {
  explicit MovableTensor(int64_t numel, float value)
      : first(static_cast<size_t>(numel), value),
        second(static_cast<size_t>(numel), -1.0F),
        tensor(at::from_blob(first.data(), {numel}, at::kFloat)) {}

  void move() {
    tensor.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
        at::DataPtr(second.data(), at::kCPU));
  }
  // All of the first place is `value`, and the second is untouched.
  void expect(float value) const {
    for (const float element : first) ASSERT_EQ(element, value);
    for (const float element : second) ASSERT_EQ(element, -1.0F);
  }

  std::vector<float> first, second;
  at::Tensor tensor;
};

// An operation works where its tensors lay when it was started, whatever becomes of their storage.
inline void moved_storage_case(Communicator& world) {
  constexpr int64_t kSlice = 100;
  const auto signal = world.split(0, world.rank(), "signal");
  const int64_t whole = kSlice * world.size();
  const auto ranks = static_cast<float>(world.size());
  MovableTensor gathered(whole, 0), slice(kSlice, 1);
  MovableTensor scattered(kSlice, 0), parts(whole, 1);
  MovableTensor reduced(kSlice, 1), sent(kSlice, world.rank() == 0 ? 1 : 0);
  MovableTensor exchanged(whole, 0), mine(whole, 1);
  // Rank 0 moves everything before any other rank has started anything.
  if (world.rank() != 0) signal->barrier().block();
  std::vector<Work> works = {world.all_gather(gathered.tensor, slice.tensor),
                             world.reduce_scatter(scattered.tensor, parts.tensor),
                             world.all_reduce(reduced.tensor, ReduceOp::kSum),
                             world.broadcast(sent.tensor, 0),
                             world.all_to_all(exchanged.tensor, mine.tensor)};
  for (MovableTensor* moved :
       {&gathered, &slice, &scattered, &parts, &reduced, &sent, &exchanged, &mine})
    moved->move();
  if (world.rank() == 0) signal->barrier().block();
  for (Work& work : works) work.block();
  gathered.expect(1);
  scattered.expect(ranks);
  reduced.expect(ranks);
  sent.expect(1);
  exchanged.expect(1);
  for (const MovableTensor* input : {&slice, &parts, &mine}) input->expect(1);
}

// Ranks start operations of two groups in different orders and wait only afterwards.
inline void overlap_case(Communicator& world) {
  const auto a = world.split(0, world.rank(), "a");
  const auto b = world.split(0, world.rank(), "b");
  for (int round = 0; round < 20; ++round) {
    const auto x = at::full({5000}, 1.0 + world.rank(), at::kFloat);
    const auto y = at::full({7000}, 2.0 + world.rank(), at::kFloat);
    Work on_a, on_b;
    if (world.rank() % 2 == 0) {
      on_a = a->all_reduce(x, ReduceOp::kSum);
      on_b = b->all_reduce(y, ReduceOp::kSum);
      on_b.wait();  // a must go on although this rank blocks on b
      on_a.wait();
    } else {
      on_b = b->all_reduce(y, ReduceOp::kSum);
      if (round % 2 == 0) on_b.wait();
      on_a = a->all_reduce(x, ReduceOp::kSum);
      on_a.wait();
      on_b.wait();
    }
    EXPECT_TRUE(on_a.done() && on_b.done());
    const double ranks = world.size(), base = ranks * (ranks - 1) / 2;
    EXPECT_TRUE(same(x, at::full({5000}, base + ranks, at::kFloat)));
    EXPECT_TRUE(same(y, at::full({7000}, base + 2 * ranks, at::kFloat)));
  }
}

// Works that are dropped still run, in order, and tensors live as long as they are needed.
inline void dropped_work_case(Communicator& world) {
  const auto sum = at::ones({1000}, at::kFloat);
  for (int i = 0; i < 5; ++i) {
    world.all_reduce(sum, ReduceOp::kSum);
    world.all_reduce(at::ones({3000}, at::kFloat), ReduceOp::kSum);
  }
  world.barrier().wait();
  EXPECT_EQ(sum[999].item<float>(), std::pow(static_cast<float>(world.size()), 5.0f));
}

// Many small operations in a row, whose results depend on each other.
inline void sequence_case(Communicator& world) {
  auto value = at::full({1}, world.rank(), at::kLong);
  for (int64_t i = 0; i < 200; ++i) {
    world.all_reduce(value, ReduceOp::kMax).wait();
    EXPECT_EQ(value.item<int64_t>(), world.size() - 1 + i);
    value += 1;
    world.barrier().wait();
  }
}

// Ranks are named by their numbers in the world, in groups of groups as well.
inline void rank_names_case(Communicator& world) {
  const int columns = world.size() % 2 == 0 ? 2 : 1;
  const int row = world.rank() / columns, column = world.rank() % columns;
  const auto cols = world.split(column, -row, "column");  // in descending order of rows
  const auto alone = cols->split(row, 0, "alone");
  for (int i = 0; i < cols->size(); ++i) {
    const int other = (cols->size() - 1 - i) * columns + column;
    EXPECT_EQ(cols->world_rank(i), other);
    EXPECT_EQ(cols->host_of(i), world.host_of(other));
    EXPECT_EQ(cols->rank_text(i), world.rank_text(other));
  }
  EXPECT_EQ(alone->size(), 1);
  EXPECT_EQ(alone->world_rank(0), world.rank());
  const std::string host = world.host_of(world.rank());
  EXPECT_EQ(world.rank_text(world.rank()),
            "rank " + std::to_string(world.rank()) + (host.empty() ? "" : " (" + host + ")"));
}

// What the record of the world says of one group; empty: it is not there.
inline GroupView view_of(const Communicator& world, const std::string& group) {
  for (GroupView& view : world.record()->view())
    if (view.group == group) return std::move(view);
  return {};
}

// The record has what is done, what runs, and for whom it waits.
inline void record_case(Communicator& world) {
  if (world.size() == 1) return;  // a group of one has no record
  const int last = world.size() - 1;
  {
    const auto part = world.split(0, -world.rank(), "part");  // the last rank comes first
    part->barrier().wait();
    part->all_reduce(at::ones({16}, at::kBFloat16), ReduceOp::kSum).wait();
    GroupView view = view_of(world, "part");
    ASSERT_EQ(view.ranks.size(), static_cast<size_t>(world.size()));
    EXPECT_EQ(view.ranks.front(), last);
    EXPECT_EQ(view.ranks.back(), 0);
    EXPECT_EQ(view.started, 2);
    EXPECT_EQ(view.done, 2);
    ASSERT_EQ(view.last.size(), 2u);
    EXPECT_EQ(view.last[0].number, 1);
    EXPECT_EQ(view.last[0].kind, "barrier");
    EXPECT_EQ(view.last[0].dtype, "");
    EXPECT_EQ(view.last[1].number, 2);
    EXPECT_EQ(view.last[1].kind, "all-reduce");
    EXPECT_EQ(view.last[1].dtype, "bf16");
    EXPECT_EQ(view.last[1].count, 16);
    EXPECT_EQ(view.last[1].state, OperationView::State::kDone);
    EXPECT_GT(view.last[1].seconds, 0.0);

    if (world.rank() == last) world.barrier().wait();  // until the others have looked
    Work work = part->all_reduce(at::ones({4}, at::kFloat), ReduceOp::kMax);
    if (world.rank() != last) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      do {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        view = view_of(world, "part");
      } while (view.last.back().missing.empty() && std::chrono::steady_clock::now() < end);
      EXPECT_EQ(view.started, 3);
      EXPECT_EQ(view.done, 2);
      EXPECT_EQ(view.last.back().number, 3);
      EXPECT_EQ(view.last.back().state, OperationView::State::kRunning);
      EXPECT_GT(view.last.back().seconds, 0.0);
      EXPECT_EQ(view.last.back().missing, std::vector<int>{last});
      world.barrier().wait();
    }
    work.wait();
    EXPECT_TRUE(view_of(world, "part").last.back().missing.empty());
  }
  EXPECT_EQ(view_of(world, "part").group, "");  // closed
}

// Bad arguments are refused at the call, on the rank that makes it, and nothing is started.
inline void argument_case(Communicator& world) {
  const int64_t ranks = world.size();
  const auto f = [](int64_t n) { return at::zeros({n}, at::kFloat); };
  expect_contains(error_of([&] { world.all_gather(f(7 * ranks + 1), f(7)); }),
                  "out has " + std::to_string(7 * ranks + 1) + " elements and in has 7");
  expect_contains(error_of([&] { world.reduce_scatter(f(7), f(7 * ranks + 2)); }),
                  "in has " + std::to_string(7 * ranks + 2) + " elements and out has 7");
  expect_contains(error_of([&] { world.all_gather(at::zeros({2 * ranks}, at::kDouble), f(2)); }),
                  "out has dtype Double, in has Float");
  expect_contains(
      error_of([&] { world.reduce_scatter(at::zeros({2}, at::kBFloat16), f(2 * ranks)); }),
      "out has dtype BFloat16, in has Float");
  expect_contains(error_of([&] {
                    world.all_reduce(at::zeros({4, 4}).t(), ReduceOp::kSum);
                  }),
                  "`tensor` of 16 elements is not contiguous");
  expect_contains(error_of([&] { world.all_reduce(at::zeros({4}, at::kBool), ReduceOp::kSum); }),
                  "`tensor` has dtype Bool");
  expect_contains(error_of([&] { world.all_reduce(at::Tensor(), ReduceOp::kSum); }),
                  "tensor `tensor` is undefined");
  expect_contains(error_of([&] { world.broadcast(f(3), world.size()); }),
                  "root " + std::to_string(ranks) + " is no rank");
  expect_contains(error_of([&] { world.send(f(3), world.rank()); }), "is the sender itself");
  expect_contains(error_of([&] { world.recv(f(3), -1); }), "source -1 is no rank");
  const auto buffer = f(4 * ranks + 1);
  expect_contains(error_of([&] {
                    world.all_gather(buffer.narrow(0, 0, 4 * ranks),
                                     buffer.narrow(0, world.rank() * 4 + 1, 4));
                  }),
                  "in and out overlap at byte " + std::to_string(world.rank() * 16 + 4));
  expect_contains(
      error_of([&] { world.all_to_all(buffer.narrow(0, 0, ranks), buffer.narrow(0, 1, ranks)); }),
      ranks == 1 ? "" : "in and out overlap");
  world.barrier().wait();  // the group still works
}

// Every case above.
inline void all_cases(Communicator& world) {
  all_gather_case(world);
  reduce_scatter_case(world);
  all_reduce_case(world);
  broadcast_case(world);
  all_to_all_case(world);
  send_recv_case(world);
  split_case(world);
  overlap_case(world);
  moved_storage_case(world);
  dropped_work_case(world);
  sequence_case(world);
  rank_names_case(world);
  record_case(world);
  argument_case(world);
}

}  // namespace tessera::testing
