#pragma once

#include <string>
#include <string_view>

namespace tessera {

// Who a process is, told so that another process, perhaps on another machine, can say whether it
// still runs.
struct ProcessIdentity {
  std::string host;     // its name, for people
  std::string machine;  // one running kernel and process namespace; empty: not known
  int pid = 0;
  std::string
      started;        // by the kernel's clock: tells this process from a later one with its number
  std::string since;  // the time, for people
  std::string job;    // of Slurm; empty: none
  int restarts = 0;   // how often the job was requeued
  std::string token;  // of this process's making, and nobody else's

  static ProcessIdentity own();
  // From to_text(); nullopt-like (an empty token) for anything else.
  static ProcessIdentity parse(std::string_view text);
  std::string to_text() const;  // one line of JSON

  // "host n01, process 4711, since 2026-11-30 22:15:03 UTC, job 12"
  std::string describe() const;

  // kEnded and kRuns are certain: it ran on this kernel, or it is an earlier turn of this job,
  // which Slurm starts again only when the last turn has ended. Of another machine nothing is
  // known.
  enum class Life { kRuns, kEnded, kUnknown };
  Life life() const;
};

}  // namespace tessera
