#include "training/config_agreement.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "config/load.h"

namespace tessera {
namespace {

constexpr int64_t kTextBytes = 512;  // of the first difference; enough for a key and two values

std::string text_of(const at::Tensor& bytes) {
  const auto* data = reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>());
  return {data, strnlen(data, static_cast<size_t>(bytes.numel()))};
}

void put_text(const std::string& text, const at::Tensor& bytes) {
  const auto size = std::min(text.size(), static_cast<size_t>(bytes.numel()));
  std::memcpy(bytes.mutable_data_ptr<uint8_t>(), text.data(), size);
}

// Rank 0's configuration as JSON, on every rank.
nlohmann::json config_of_rank_0(const Config& config, Communicator& world) {
  const std::string own = to_json(config).dump();
  at::Tensor size = at::full({1}, static_cast<int64_t>(own.size()), at::kLong);
  world.broadcast(size, 0).wait();
  at::Tensor bytes = at::zeros({size.item<int64_t>()}, at::kByte);
  if (world.rank() == 0) put_text(own, bytes);
  world.broadcast(bytes, 0).wait();
  return nlohmann::json::parse(text_of(bytes));
}

}  // namespace

void check_same_config(const Config& config, Communicator& world) {
  const auto difference = compare_for_resume(config_of_rank_0(config, world), config);
  std::string first;
  for (const auto* lines : {&difference.mathematics, &difference.other})
    if (first.empty() && !lines->empty()) first = lines->front();

  at::Tensor mine = at::zeros({kTextBytes}, at::kByte);
  put_text(first, mine);
  at::Tensor all = at::zeros({kTextBytes * world.size()}, at::kByte);
  world.all_gather(all, mine).wait();
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::string text = text_of(all.narrow(0, rank * kTextBytes, kTextBytes));
    if (!text.empty())
      fail_user("config",
                "rank {} has read another configuration than rank 0: {}; give all ranks the same "
                "file and arguments",
                rank, text);
  }
}

}  // namespace tessera
