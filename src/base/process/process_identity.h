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
  std::string job;      // of Slurm; empty: none
  int restarts = 0;     // how often the job was requeued
  std::string token;    // random: each call of own() makes another

  static ProcessIdentity own();
  // Reads what to_text() wrote. Anything else gives an identity with an empty token.
  static ProcessIdentity parse(std::string_view text);
  std::string to_text() const;  // one line of JSON

  // "host n01, process 4711, since 2026-11-30 22:15:03 UTC, job 12"
  std::string describe() const;

  // Whether the process still runs. kEnded and kRuns are certain: the process ran on this kernel,
  // or in an earlier turn of this Slurm job, which starts again only when its last turn has ended.
  // Of a process on another machine nothing is known: kUnknown.
  enum class Life { kRuns, kEnded, kUnknown };
  Life life() const;
};

}  // namespace tessera
