#include "parallel/comm/core/operation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "parallel/comm/core/rank_names.h"

namespace tessera {
namespace {

constexpr const char* kSubsystem = "comm";

const char* reduce_name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMin:
      return "min";
  }
  return "?";
}

bool known(at::ScalarType dtype) {
  return dtype == at::kDouble || dtype == at::kFloat || dtype == at::kBFloat16 ||
         dtype == at::kHalf || dtype == at::kLong || dtype == at::kInt || dtype == at::kByte;
}

void check_tensor(const Communicator& group, const char* what, const char* argument,
                  const at::Tensor& tensor) {
  if (!tensor.defined())
    fail(kSubsystem, "{}: {}: tensor `{}` is undefined", group.name(), what, argument);
  if (!tensor.device().is_cpu() && tensor.device() != group.device())
    fail(kSubsystem, "{}: {}: `{}` lies on {}; this communicator takes tensors of {}{}",
         group.name(), what, argument, tensor.device().str(), group.device().str(),
         group.device().is_cpu() ? "" : " and cpu");
  if (!known(tensor.scalar_type()))
    fail(kSubsystem,
         "{}: {}: `{}` has dtype {}; Double, Float, BFloat16, Half, Long, Int and Byte can travel",
         group.name(), what, argument, at::toString(tensor.scalar_type()));
  if (!tensor.is_contiguous())
    fail(kSubsystem, "{}: {}: `{}` of {} elements is not contiguous; pass tensor.contiguous()",
         group.name(), what, argument, tensor.numel());
}

void check_same_device(const Communicator& group, const char* what, const at::Tensor& out,
                       const at::Tensor& in) {
  if (out.device() != in.device())
    fail(kSubsystem, "{}: {}: out lies on {}, in on {}; they must lie on one device", group.name(),
         what, out.device().str(), in.device().str());
}

void check_same_dtype(const Communicator& group, const char* what, const at::Tensor& out,
                      const at::Tensor& in) {
  if (out.scalar_type() != in.scalar_type())
    fail(kSubsystem, "{}: {}: out has dtype {}, in has {}; they must agree", group.name(), what,
         at::toString(out.scalar_type()), at::toString(in.scalar_type()));
}

// `whole` must hold size x `slice` elements.
void check_slices(const Communicator& group, const char* what, const char* whole_name,
                  int64_t whole, const char* slice_name, int64_t slice) {
  if (whole != group.size() * slice)
    fail(kSubsystem, "{}: {}: {} has {} elements and {} has {}; on {} ranks {} must hold {}",
         group.name(), what, whole_name, whole, slice_name, slice, group.size(), whole_name,
         group.size() * slice);
}

void check_peer(const Communicator& group, const char* what, const char* argument, int peer) {
  if (peer < 0 || peer >= group.size())
    fail(kSubsystem, "{}: {}: {} {} is no rank; the group has ranks 0 to {}", group.name(), what,
         argument, peer, group.size() - 1);
}

bool overlap(const char* a, int64_t a_bytes, const char* b, int64_t b_bytes) {
  return a_bytes > 0 && b_bytes > 0 && a < b + b_bytes && b < a + a_bytes;
}

// A slice may be the group rank's own slice of the whole, and must not touch it otherwise.
void check_alias(const Communicator& group, const char* what, const char* whole,
                 int64_t whole_bytes, const char* slice, int64_t slice_bytes) {
  if (!overlap(whole, whole_bytes, slice, slice_bytes)) return;
  if (slice != whole + group.rank() * slice_bytes || whole_bytes != group.size() * slice_bytes)
    fail(kSubsystem,
         "{}: {}: in and out overlap at byte {}; in place the small one must be slice {} of the "
         "large one, at byte {}",
         group.name(), what, slice - whole, group.rank(), group.rank() * slice_bytes);
}

Operation operation_on(OperationKind kind, at::Tensor out, at::Tensor in, int64_t count) {
  Operation op;
  op.kind = kind;
  op.dtype = in.defined() ? in.scalar_type() : out.scalar_type();
  op.out_dtype = out.defined() ? out.scalar_type() : op.dtype;
  op.count = count;
  op.element_bytes = element_size(op.dtype);
  if (out.defined()) op.out_data = static_cast<char*>(out.data_ptr());
  if (in.defined()) op.in_data = static_cast<const char*>(in.const_data_ptr());
  op.out = std::move(out);
  op.in = std::move(in);
  return op;
}

}  // namespace

int64_t element_size(at::ScalarType dtype) {
  return static_cast<int64_t>(c10::elementSize(dtype));
}

const char* operation_name(OperationKind kind) {
  switch (kind) {
    case OperationKind::kAllGather:
      return "all_gather";
    case OperationKind::kReduceScatter:
      return "reduce_scatter";
    case OperationKind::kAllReduce:
      return "all_reduce";
    case OperationKind::kBroadcast:
      return "broadcast";
    case OperationKind::kAllToAll:
      return "all_to_all";
    case OperationKind::kSend:
      return "send";
    case OperationKind::kRecv:
      return "recv";
    case OperationKind::kBarrier:
      return "barrier";
  }
  return "?";
}

std::string Operation::text(const RankNames& ranks) const {
  const std::string elements = fmt::format("{}, {} elements", at::toString(dtype), count);
  switch (kind) {
    case OperationKind::kBarrier:
      return "barrier";
    case OperationKind::kAllReduce:
      return fmt::format("all_reduce({}, {})", reduce_name(reduce), elements);
    case OperationKind::kBroadcast:
      return fmt::format("broadcast({}, root {})", elements, ranks.world_rank(peer));
    case OperationKind::kSend:
      return fmt::format("send({}, to {})", elements, ranks.world_rank(peer));
    case OperationKind::kRecv:
      return fmt::format("recv({}, from {})", elements, ranks.world_rank(peer));
    case OperationKind::kReduceScatter:
      if (out_dtype != dtype)
        return fmt::format("reduce_scatter({} to {}, {} elements a slice)", at::toString(dtype),
                           at::toString(out_dtype), count);
      [[fallthrough]];
    default:
      return fmt::format("{}({} a slice)", operation_name(kind), elements);
  }
}

Operation all_gather_operation(const Communicator& group, at::Tensor out, at::Tensor in) {
  constexpr const char* kWhat = "all_gather";
  check_tensor(group, kWhat, "out", out);
  check_tensor(group, kWhat, "in", in);
  check_same_device(group, kWhat, out, in);
  check_same_dtype(group, kWhat, out, in);
  check_slices(group, kWhat, "out", out.numel(), "in", in.numel());
  const int64_t count = in.numel();
  auto op = operation_on(OperationKind::kAllGather, std::move(out), std::move(in), count);
  const int64_t bytes = count * op.element_bytes;
  check_alias(group, kWhat, op.out_data, group.size() * bytes, op.in_data, bytes);
  return op;
}

Operation reduce_scatter_operation(const Communicator& group, at::Tensor out, at::Tensor in) {
  constexpr const char* kWhat = "reduce_scatter";
  check_tensor(group, kWhat, "out", out);
  check_tensor(group, kWhat, "in", in);
  check_same_device(group, kWhat, out, in);
  if (!(at::isReducedFloatingType(in.scalar_type()) && out.scalar_type() == at::kFloat))
    check_same_dtype(group, kWhat, out, in);
  check_slices(group, kWhat, "in", in.numel(), "out", out.numel());
  const int64_t count = out.numel();
  auto op = operation_on(OperationKind::kReduceScatter, std::move(out), std::move(in), count);
  check_alias(group, kWhat, op.in_data, group.size() * count * op.element_bytes, op.out_data,
              count * element_size(op.out_dtype));
  return op;
}

Operation all_reduce_operation(const Communicator& group, at::Tensor tensor, ReduceOp reduce) {
  check_tensor(group, "all_reduce", "tensor", tensor);
  const int64_t count = tensor.numel();
  auto op = operation_on(OperationKind::kAllReduce, std::move(tensor), {}, count);
  op.reduce = reduce;
  return op;
}

Operation broadcast_operation(const Communicator& group, at::Tensor tensor, int root) {
  check_tensor(group, "broadcast", "tensor", tensor);
  check_peer(group, "broadcast", "root", root);
  const int64_t count = tensor.numel();
  auto op = operation_on(OperationKind::kBroadcast, std::move(tensor), {}, count);
  op.peer = root;
  return op;
}

Operation all_to_all_operation(const Communicator& group, at::Tensor out, at::Tensor in) {
  constexpr const char* kWhat = "all_to_all";
  check_tensor(group, kWhat, "out", out);
  check_tensor(group, kWhat, "in", in);
  check_same_device(group, kWhat, out, in);
  check_same_dtype(group, kWhat, out, in);
  if (out.numel() != in.numel() || in.numel() % group.size() != 0)
    fail(kSubsystem,
         "{}: all_to_all: out has {} elements and in has {}; both must hold the same multiple of "
         "the {} ranks",
         group.name(), out.numel(), in.numel(), group.size());
  const int64_t count = in.numel() / group.size();
  auto op = operation_on(OperationKind::kAllToAll, std::move(out), std::move(in), count);
  const int64_t bytes = group.size() * count * op.element_bytes;
  if (overlap(op.out_data, bytes, op.in_data, bytes))
    fail(kSubsystem, "{}: all_to_all: in and out overlap at byte {}; they must be apart",
         group.name(), op.in_data - op.out_data);
  return op;
}

Operation send_operation(const Communicator& group, at::Tensor tensor, int destination) {
  check_tensor(group, "send", "tensor", tensor);
  check_peer(group, "send", "destination", destination);
  if (destination == group.rank())
    fail(kSubsystem, "{}: send: destination {} is the sender itself; copy instead", group.name(),
         destination);
  const int64_t count = tensor.numel();
  auto op = operation_on(OperationKind::kSend, {}, std::move(tensor), count);
  op.peer = destination;
  return op;
}

Operation recv_operation(const Communicator& group, at::Tensor tensor, int source) {
  check_tensor(group, "recv", "tensor", tensor);
  check_peer(group, "recv", "source", source);
  if (source == group.rank())
    fail(kSubsystem, "{}: recv: source {} is the receiver itself; copy instead", group.name(),
         source);
  const int64_t count = tensor.numel();
  auto op = operation_on(OperationKind::kRecv, std::move(tensor), {}, count);
  op.peer = source;
  return op;
}

SplitPlace find_split_place(Communicator& group, int color, int key) {
  const auto mine = at::tensor({int64_t{color}, int64_t{key}}, at::kLong);
  const auto all = at::empty({group.size(), 2}, at::kLong);
  group.all_gather(all, mine).block();
  const int64_t* entry = all.const_data_ptr<int64_t>();
  SplitPlace place{0, {}};
  for (int r = 0; r < group.size(); ++r)
    if (entry[2 * r] == color) place.members.push_back(r);
  std::stable_sort(place.members.begin(), place.members.end(),
                   [&](int a, int b) { return entry[2 * a + 1] < entry[2 * b + 1]; });
  const auto self = std::find(place.members.begin(), place.members.end(), group.rank());
  place.rank = static_cast<int>(self - place.members.begin());
  return place;
}

void check_color(const Communicator& group, int color) {
  if (color < 0)
    fail(kSubsystem, "{}: split: color {} is negative; colors start at 0", group.name(), color);
}

}  // namespace tessera
