#include "parallel/comm/core/agreement.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/error_kinds.h"
#include "base/process/stop_requested.h"
#include "base/xxh3.h"
#include "parallel/comm/core/file_work.h"

namespace tessera {

std::vector<std::string> gather_messages(Communicator& world, const std::string& message) {
  at::Tensor lengths = at::empty({world.size()}, at::kLong);
  at::Tensor length = at::full({1}, static_cast<int64_t>(message.size()), at::kLong);
  world.all_gather(lengths, length).block();
  const int64_t longest = std::max<int64_t>(1, lengths.max().item<int64_t>());

  at::Tensor padded = at::zeros({longest}, at::kByte);
  std::memcpy(padded.data_ptr(), message.data(), message.size());
  at::Tensor all = at::empty({world.size() * longest}, at::kByte);
  world.all_gather(all, padded).block();
  std::vector<std::string> messages;
  const char* text = static_cast<const char*>(all.data_ptr());
  for (int rank = 0; rank < world.size(); ++rank)
    messages.emplace_back(text + rank * longest,
                          static_cast<size_t>(lengths.data_ptr<int64_t>()[rank]));
  return messages;
}

std::string text_of_rank_0(Communicator& world, const std::string& own) {
  at::Tensor size = at::full({1}, static_cast<int64_t>(own.size()), at::kLong);
  world.broadcast(size, 0).wait();
  at::Tensor bytes = at::zeros({std::max<int64_t>(1, size.item<int64_t>())}, at::kByte);
  if (world.rank() == 0) std::memcpy(bytes.mutable_data_ptr(), own.data(), own.size());
  world.broadcast(bytes, 0).wait();
  return {static_cast<const char*>(bytes.const_data_ptr()),
          static_cast<size_t>(size.item<int64_t>())};
}

bool same_on_all_ranks(Communicator& world, const std::string& text) {
  const uint64_t digest = xxh3_64(text.data(), text.size());
  at::Tensor own = at::full({1}, static_cast<int64_t>(digest), at::kLong);
  at::Tensor all = at::empty({world.size()}, at::kLong);
  world.all_gather(all, own).wait();
  return (all == own).all().item<bool>();
}

std::vector<std::string> agree(Communicator& world, const std::function<std::string()>& work) {
  constexpr char kDone = 'D', kFailed = 'F', kUserError = 'U', kDamaged = 'B', kStopped = 'S',
                 kReplaced = 'R';
  std::string report;
  try {
    report = kDone + work();
  } catch (const DamagedError& error) {
    report = std::string(1, kDamaged) + error.what();
  } catch (const UserError& error) {
    report = std::string(1, kUserError) + error.what();
  } catch (const ReplacedError& error) {
    report = std::string(1, kReplaced) + error.what();
  } catch (const StopRequested&) {
    report = kStopped;
  } catch (const std::exception& error) {
    report = std::string(1, kFailed) + error.what();
  }
  const FileWork file_work;  // others may still be in their `work`
  std::vector<std::string> reports = gather_messages(world, report);
  const auto raise = [&](size_t rank) {
    const char status = reports[rank].at(0);
    const std::string text = reports[rank].substr(1);
    const std::string message =
        world.size() == 1
            ? text
            : fmt::format("{} (on {})", text, world.rank_text(static_cast<int>(rank)));
    if (status == kDamaged) throw_on_all_ranks<DamagedError>(message, static_cast<int>(rank));
    if (status == kUserError) throw_on_all_ranks<UserError>(message, static_cast<int>(rank));
    if (status == kReplaced) throw_on_all_ranks<ReplacedError>(message, static_cast<int>(rank));
    throw_on_all_ranks<Error>(message, static_cast<int>(rank));
  };
  for (size_t rank = 0; rank < reports.size(); ++rank)
    if (reports[rank].at(0) == kReplaced) raise(rank);
  bool stopped = false;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const char status = reports[rank].at(0);
    stopped = stopped || status == kStopped;
    if (status == kFailed || status == kUserError) raise(rank);
  }
  if (stopped) throw StopRequested();
  for (size_t rank = 0; rank < reports.size(); ++rank)
    if (reports[rank].at(0) == kDamaged) raise(rank);
  for (std::string& report_of_rank : reports) report_of_rank.erase(0, 1);
  return reports;
}

}  // namespace tessera
