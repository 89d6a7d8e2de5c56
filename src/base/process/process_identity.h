#pragma once

#include <string>
#include <string_view>

namespace tessera {

// Who a process is, told so that another process, perhaps on another machine, can say whether it
// still runs.
struct ProcessIdentity {
  std::string host;     // its name, for people
  std::string machine;  // names the running kernel and the process namespace; empty: not known
  int pid = 0;
  std::string started;  // by the kernel's clock: a later process with the same pid has another
  std::string since;    // the time, for people
  std::string cluster;  // of Slurm; empty: not known
  std::string job;      // of Slurm, "12", or "12_3" for a task of an array; empty: none
  int restarts = 0;     // how often the job was requeued
  std::string token;    // random: each call of own() makes another

  static ProcessIdentity own();
  // Reads what to_text() wrote. Anything else gives an identity with an empty token.
  static ProcessIdentity parse(std::string_view text);
  std::string to_text() const;  // one line of JSON

  // "host n01, process 4711, since 2026-11-30 22:15:03 UTC, job 12, restart 1"
  std::string describe() const;

  // Whether this process belongs to a later turn of the same Slurm job: the job was requeued in
  // between. Slurm ends a turn before it starts the next, but for what it cannot reach: a node that
  // was cut off and lives.
  bool is_later_turn_of(const ProcessIdentity& other) const;

  // Whether the process still runs. kEnded and kRuns are certain: the process ran on this kernel.
  // Of a process on another machine nothing is known: kUnknown.
  enum class Life { kRuns, kEnded, kUnknown };
  Life life() const;
};

}  // namespace tessera
