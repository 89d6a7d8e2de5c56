#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "training/watch/rank_state.h"
#include "training/watch/socket.h"

namespace tessera {

// What a rank above 0 has of the side channel: its connection to rank 0 (hub.h). Used by one
// thread.
class Spoke {
 public:
  // `file`: by which rank 0 can be found, once it is there.
  Spoke(int rank, int ranks, std::string host, std::filesystem::path file);

  // Waits for news, at most so long or until `wake` can be read, and takes what has come; while
  // there has been no connection, tries to make one. A try ends when `give_up()` becomes true.
  void work(std::chrono::milliseconds wait, int wake, const std::function<bool()>& give_up);
  // So much time has passed in which this rank ran.
  void count(double seconds);

  // All ranks by number, as far as this one knows them: the hub from its heartbeats, the others
  // from its roster; the owner writes its own. A hub that was never reached is kAbsent.
  std::vector<RankState>& states() { return states_; }
  bool joined() const { return joined_; }

  void beat();
  void fail(const std::string& error, int exit_code);
  void leave();
  bool all_sent() const { return !socket_ || !socket_->unsent(); }

  // What rank 0 has found, and the exit code that goes with it.
  struct Told {
    std::string text;
    int exit_code;
  };
  const std::optional<Told>& told() const { return told_; }

 private:
  void connect(const std::function<bool()>& give_up);
  bool greet(const std::string& address, int port, const std::string& question,
             const std::string& answer, const std::function<bool()>& give_up);
  void take(const std::string& line);

  const int rank_;
  const std::string host_;
  const std::filesystem::path file_;
  std::vector<RankState> states_;
  std::optional<LineSocket> socket_;
  bool joined_ = false;
  std::optional<Told> told_;
};

}  // namespace tessera
