#include "parallel/comm/core/group_record.h"

#include <algorithm>
#include <utility>

namespace tessera {
namespace {

using State = OperationView::State;

std::string kind_text(OperationKind kind) {
  std::string text = operation_name(kind);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

const char* dtype_text(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return "fp64";
    case at::kFloat:
      return "fp32";
    case at::kBFloat16:
      return "bf16";
    case at::kHalf:
      return "fp16";
    case at::kLong:
      return "int64";
    case at::kInt:
      return "int32";
    case at::kByte:
      return "uint8";
    default:
      return "?";
  }
}

}  // namespace

GroupRecord::GroupRecord(std::string group, std::vector<int> ranks)
    : group_(std::move(group)), ranks_(std::move(ranks)) {}

GroupRecord::Entry GroupRecord::entry_of(const Operation& op) {
  Entry entry;
  entry.number = static_cast<int64_t>(op.sequence);
  entry.kind = op.kind;
  entry.dtype = op.dtype;
  entry.count = op.count;
  return entry;
}

GroupRecord::Entry& GroupRecord::place_of(const Operation& op) {
  return entries_[static_cast<size_t>(op.sequence) % kEntries];
}

void GroupRecord::queued(const Operation& op) {
  const std::lock_guard lock(mutex_);
  ++started_;
  Entry& place = place_of(op);
  if (place.number == 0 || place.state == State::kDone) place = entry_of(op);
}

void GroupRecord::running(const Operation& op, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  Entry& place = place_of(op);
  place = entry_of(op);
  place.state = State::kRunning;
  place.begun = now;
  awaited_.clear();
}

void GroupRecord::done(const Operation& op, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  Entry& place = place_of(op);
  place.state = State::kDone;
  place.ended = now;
  awaited_.clear();
  ++done_;
}

void GroupRecord::waits_for(std::vector<int> ranks) {
  for (int& rank : ranks) rank = ranks_.at(static_cast<size_t>(rank));
  std::sort(ranks.begin(), ranks.end());
  const std::lock_guard lock(mutex_);
  awaited_ = std::move(ranks);
}

void GroupRecord::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

bool GroupRecord::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

OperationView GroupRecord::view_of(const Entry& entry, Clock::time_point now) const {
  OperationView view;
  view.number = entry.number;
  view.kind = kind_text(entry.kind);
  view.count = entry.count;
  if (entry.kind != OperationKind::kBarrier) view.dtype = dtype_text(entry.dtype);
  view.state = entry.state;
  const auto end = entry.state == State::kDone ? entry.ended : now;
  if (entry.state != State::kQueued)
    view.seconds = std::chrono::duration<double>(end - entry.begun).count();
  if (entry.state == State::kRunning) view.missing = awaited_;
  return view;
}

GroupView GroupRecord::view() const {
  const auto now = Clock::now();
  GroupView view;
  view.group = group_;
  view.ranks = ranks_;
  const std::lock_guard lock(mutex_);
  view.started = started_;
  view.done = done_;
  for (const Entry& entry : entries_)
    if (entry.number != 0) view.last.push_back(view_of(entry, now));
  std::sort(view.last.begin(), view.last.end(),
            [](const OperationView& a, const OperationView& b) { return a.number < b.number; });
  return view;
}

}  // namespace tessera
