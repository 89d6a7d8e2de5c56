#include "training/watch/spoke.h"

#include <algorithm>
#include <utility>

#include "training/watch/meeting_file.h"

namespace tessera {
namespace {

using nlohmann::json;
using Life = RankState::Life;

// For a connection, and for the answer that says that it is the right one.
constexpr std::chrono::milliseconds kConnectLimit{1500};

std::string line_of(const json& message) {
  return message.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

Spoke::Spoke(int rank, int ranks, std::string host, std::filesystem::path file)
    : rank_(rank),
      host_(std::move(host)),
      file_(std::move(file)),
      states_(static_cast<size_t>(ranks)) {
  for (size_t i = 0; i < states_.size(); ++i) states_[i].rank = static_cast<int>(i);
  RankState& own = states_[static_cast<size_t>(rank)];
  own.host = host_;
  own.life = Life::kLive;
}

void Spoke::work(std::chrono::milliseconds wait, int wake, const std::function<bool()>& give_up) {
  if (!joined_) connect(give_up);
  wait_readable({wake, socket_ ? socket_->fd() : -1}, wait);
  if (!socket_) return;
  for (const std::string& line : socket_->read()) {
    try {
      take(line);
    } catch (const json::exception&) {
      // A later line may be whole.
    }
  }
  socket_->flush();
  if (!socket_->ended()) return;
  RankState& hub = states_[0];
  if (hub.life == Life::kLive) {
    hub.life = Life::kLost;
    hub.end = socket_->reason();
    hub.silent = 0.0;
  }
  socket_.reset();
}

void Spoke::connect(const std::function<bool()>& give_up) {
  auto meeting = read_meeting_file(file_);
  if (!meeting) return;
  // On the same machine the loopback is the surest way.
  if (meeting->host == host_)
    std::rotate(meeting->addresses.rbegin(), meeting->addresses.rbegin() + 1,
                meeting->addresses.rend());
  for (const std::string& address : meeting->addresses)
    if (give_up() || greet(address, meeting->port, meeting->question, meeting->answer, give_up)) {
      states_[0].host = meeting->host;
      return;
    }
}

bool Spoke::greet(const std::string& address, int port, const std::string& question,
                  const std::string& answer, const std::function<bool()>& give_up) {
  Socket connected = connect_to(address, port, kConnectLimit, give_up);
  if (!connected.is_open()) return false;
  LineSocket socket(std::move(connected));
  socket.write(line_of({{"question", question}, {"rank", rank_}, {"host", host_}}));
  constexpr std::chrono::milliseconds kLook{50};
  for (std::chrono::milliseconds waited{0}; waited < kConnectLimit; waited += kLook) {
    if (give_up()) return false;
    wait_readable({socket.fd()}, kLook);
    const auto lines = socket.read();
    if (socket.ended()) return false;
    if (lines.empty()) continue;
    const json message = json::parse(lines[0], nullptr, /*allow_exceptions=*/false);
    if (!message.is_object() || message.value("answer", json()) != answer) return false;
    socket_.emplace(std::move(socket));
    joined_ = true;
    states_[0].life = Life::kLive;
    states_[0].silent = 0.0;
    for (size_t i = 1; i < lines.size(); ++i) take(lines[i]);
    return true;
  }
  return false;
}

void Spoke::count(double seconds) {
  for (RankState& state : states_) state.silent += seconds;
  // Of the others rank 0 alone hears.
  for (size_t i = 1; i < states_.size(); ++i) states_[i].silent = 0.0;
}

void Spoke::take(const std::string& line) {
  const json message = json::parse(line);
  RankState& hub = states_[0];
  if (message.contains("beat")) {
    from_json(message.at("beat"), hub);
    hub.silent = 0.0;
  }
  if (message.contains("roster")) {
    const json& roster = message.at("roster");
    for (size_t i = 0; i < std::min(states_.size(), roster.size()); ++i) {
      states_[i].host = roster[i].at(0).get<std::string>();
      const int life = roster[i].at(1).get<int>();
      // Whether a rank is alive matters here to choose who speaks if rank 0 does not; what else is
      // to be said of it, rank 0 says.
      if (i > 0 && static_cast<int>(i) != rank_)
        states_[i].life = life == static_cast<int>(Life::kLive) ? Life::kLive : Life::kLeft;
    }
  }
  if (message.contains("verdict"))
    told_ = Told{message.at("verdict").get<std::string>(), message.at("code").get<int>()};
  if (message.contains("left")) hub.life = Life::kLeft;
}

void Spoke::beat() {
  if (socket_) socket_->write(line_of({{"beat", to_json(states_[static_cast<size_t>(rank_)])}}));
}

void Spoke::fail(const std::string& error, int exit_code) {
  if (socket_) socket_->write(line_of({{"failed", error}, {"code", exit_code}}));
}

void Spoke::leave() {
  if (socket_) socket_->write(line_of({{"left", true}}));
}

}  // namespace tessera
