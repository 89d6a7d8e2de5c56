#include "training/watch/hub.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <utility>

#include "base/process/host_name.h"

namespace tessera {
namespace {

using nlohmann::json;
using Life = RankState::Life;

// Who has not said who it is may send so much, and take so long.
constexpr size_t kMostOfStrangers = 4096;
constexpr double kLongestIntroduction = 10.0;

std::string random_text() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}", random(), random(), random());
}

std::string line_of(const json& message) {
  return message.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

Hub::Hub(int ranks, std::filesystem::path file, const std::vector<std::string>& hosts)
    : file_(std::move(file)), listener_(listen_anywhere()), states_(static_cast<size_t>(ranks)) {
  for (size_t i = 0; i < states_.size(); ++i) {
    states_[i].rank = static_cast<int>(i);
    if (i < hosts.size()) states_[i].host = hosts[i];
  }
  states_[0].life = Life::kLive;
  states_[0].host = host_name();
  meeting_ = {random_text(), random_text(), states_[0].host, own_addresses(), listener_.port};
  write_meeting_file(file_, meeting_);
}

Hub::~Hub() {
  std::error_code ignored;
  std::filesystem::remove(file_, ignored);
}

void Hub::work(std::chrono::milliseconds wait, int wake) {
  std::vector<int> fds{wake};
  if (!full_) fds.push_back(listener_.socket.fd());
  for (const Connection& connection : connections_) fds.push_back(connection.socket.fd());
  wait_readable(fds, wait);
  accept_all();
  for (Connection& connection : connections_) {
    read(connection);
    connection.socket.flush();
  }
  std::erase_if(connections_, [](const Connection& connection) {
    return connection.socket.ended() ||
           (connection.rank < 0 && connection.age > kLongestIntroduction);
  });
  if (everybody_came_) return;
  everybody_came_ = std::none_of(states_.begin(), states_.end(), [](const RankState& state) {
    return state.life == Life::kAbsent;
  });
  if (!everybody_came_) return;
  std::error_code ignored;  // nobody needs it any more
  std::filesystem::remove(file_, ignored);
}

void Hub::count(double seconds) {
  for (RankState& state : states_) {
    state.silent += seconds;
    if (state.life == Life::kAbsent) state.quiet += seconds;
  }
  states_[0].silent = 0.0;
  for (Connection& connection : connections_) connection.age += seconds;
}

void Hub::accept_all() {
  for (;;) {
    Socket accepted = accept_one(listener_.socket);
    if (!accepted.is_open()) {
      // The listener stays ready then: it is tried again with the next heartbeat.
      full_ = errno == EMFILE || errno == ENFILE;
      return;
    }
    connections_.push_back({LineSocket(std::move(accepted))});
  }
}

void Hub::read(Connection& connection) {
  const auto lines =
      connection.rank < 0 ? connection.socket.read(kMostOfStrangers) : connection.socket.read();
  for (const std::string& line : lines) {
    try {
      take(connection, line);
    } catch (const json::exception&) {
      // Not of this program; whoever it is has had its turn.
      if (connection.rank < 0) connection.age = 2 * kLongestIntroduction;
    }
  }
  if (!connection.socket.ended() || connection.rank < 0) return;
  RankState& state = states_[static_cast<size_t>(connection.rank)];
  if (state.life != Life::kLive) return;
  state.life = Life::kLost;
  state.end = connection.socket.reason();
  state.silent = 0.0;
  roster_changed_ = true;
}

void Hub::take(Connection& connection, const std::string& line) {
  const json message = json::parse(line);
  if (connection.rank < 0) return greet(connection, message);
  RankState& state = states_[static_cast<size_t>(connection.rank)];
  if (message.contains("beat")) {
    from_json(message.at("beat"), state);
    state.silent = 0.0;
  } else if (state.life == Life::kLive) {
    if (message.contains("failed")) {
      state.end = message.at("failed").get<std::string>();
      state.exit_code = message.at("code").get<int>();
      state.life = Life::kFailed;
      state.silent = 0.0;
    } else if (message.contains("left")) {
      state.life = Life::kLeft;
    }
    roster_changed_ = true;
  }
}

void Hub::greet(Connection& connection, const json& message) {
  const int rank = message.at("rank").get<int>();
  if (message.at("question").get<std::string>() != meeting_.question || rank < 1 ||
      rank >= static_cast<int>(states_.size()) ||
      states_[static_cast<size_t>(rank)].life != Life::kAbsent) {
    connection.age = 2 * kLongestIntroduction;
    return;
  }
  RankState& state = states_[static_cast<size_t>(rank)];
  state.host = message.at("host").get<std::string>();
  state.life = Life::kLive;
  state.silent = state.quiet = 0.0;
  connection.rank = rank;
  connection.socket.write(line_of({{"answer", meeting_.answer}}));
  roster_changed_ = true;
}

json Hub::roster() const {
  json all = json::array();
  for (const RankState& state : states_)
    all.push_back(json::array({state.host, static_cast<int>(state.life)}));
  return all;
}

void Hub::beat() {
  full_ = false;
  json message;
  message["beat"] = to_json(states_[0]);
  if (std::exchange(roster_changed_, false)) message["roster"] = roster();
  say(line_of(message));
}

void Hub::tell(const std::string& verdict, int exit_code) {
  say(line_of({{"verdict", verdict}, {"code", exit_code}}));
}

void Hub::leave() {
  say(line_of({{"left", true}}));
}

void Hub::say(const std::string& line) {
  for (Connection& connection : connections_)
    if (connection.rank >= 0) connection.socket.write(line);
}

bool Hub::all_sent() const {
  return std::none_of(connections_.begin(), connections_.end(),
                      [](const Connection& connection) { return connection.socket.unsent(); });
}

}  // namespace tessera
