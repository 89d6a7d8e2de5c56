#pragma once

#include <chrono>
#include <filesystem>
#include <list>
#include <string>
#include <vector>

#include "training/watch/meeting_file.h"
#include "training/watch/rank_state.h"
#include "training/watch/socket.h"

namespace tessera {

// The side channel is a star of TCP connections, in which each line is an object of JSON. Rank 0
// is its middle (Hub), the others its ends (Spoke):
//
//   spoke -> hub   {"question": Q, "rank": r, "host": h}   first of all
//                  {"beat": ...}                           each second: to_json(RankState)
//                  {"failed": error, "code": c}            an error ends this rank
//                  {"left": true}                          this rank ends in order
//   hub -> spoke   {"answer": A}                           to the first line
//                  {"beat": ..., "roster": ...}            each second; the roster when it changes
//                  {"verdict": text, "code": c}            it is over
//                  {"left": true}
//
// A connection that ends without "left" or "failed" is a lost rank. Neither side ever waits for the
// other. Used by one thread.
class Hub {
 public:
  // Listens and writes `file`, by which the other ranks find it. `hosts`: those of all ranks where
  // the launcher has said so, else empty. Error if there is no port or the file cannot be written.
  Hub(int ranks, std::filesystem::path file, const std::vector<std::string>& hosts);
  ~Hub();
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  // Waits for news, at most so long or until `wake` can be read, and takes what has come.
  void work(std::chrono::milliseconds wait, int wake);
  // So much time has passed in which this rank ran.
  void count(double seconds);

  // All ranks by number; the owner writes rank 0's. Of ranks that were never heard of, `quiet` is
  // the time since the hub began.
  std::vector<RankState>& states() { return states_; }

  // Whether a rank has come or gone since the last heartbeat: the others should know soon.
  bool has_news() const { return roster_changed_; }
  // To all ranks that are connected.
  void beat();
  void tell(const std::string& verdict, int exit_code);
  void leave();
  // Whether all that was said has been sent, or cannot be.
  bool all_sent() const;

 private:
  struct Connection {
    LineSocket socket;
    int rank = -1;     // -1: it has not said who it is
    double age = 0.0;  // seconds
  };

  void accept_all();
  void read(Connection& connection);
  void take(Connection& connection, const std::string& line);
  void greet(Connection& connection, const nlohmann::json& line);
  void say(const std::string& line);
  nlohmann::json roster() const;

  const std::filesystem::path file_;
  MeetingFile meeting_;
  Listener listener_;
  std::vector<RankState> states_;
  std::list<Connection> connections_;
  bool roster_changed_ = true;
  bool everybody_came_ = false;
  bool full_ = false;  // no descriptor was left for another connection
};

}  // namespace tessera
