#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/process/process_identity.h"

namespace tessera {

// Keeps other processes out where a file system has no locks, by a FILE that only one process can
// make. It says who made it, and its owner changes it again and again to show that it lives.
//
//   newcomer   makes FILE (O_EXCL)  -> its own; changes it every `beat`, removes it at the end
//              FILE is there        -> its owner runs on this machine: refused
//                                      it ran on this machine: taken over
//                                      an earlier turn of this job: waited for, `turn` at most,
//                                      then taken over, whether it lives or not
//                                      on another machine: watched for `silent`; if FILE changes,
//                                      refused, else taken over
//
// Nothing depends on clocks of two machines. Taking over is a rename, after which the newcomer
// waits `settle` and looks whether FILE is still its own: of two newcomers at the same moment at
// most one goes on. A process that was stopped for longer than `silent`, or was cut off, may find
// the folder taken when it goes on: check() tells (folder_lock.h says what that guarantees).
class OwnerFile {
 public:
  struct Times {
    std::chrono::milliseconds beat{5000};     // between two changes of FILE by its owner
    std::chrono::milliseconds silent{60000};  // without a change: the owner counts as ended
    std::chrono::milliseconds turn{30000};    // for which an earlier turn of the job is waited for
    std::chrono::milliseconds look{1000};     // between two looks at what is waited for
    std::chrono::milliseconds settle{1000};   // from taking over to looking who has FILE now
  };

  // UserError that begins with `refusal` and names the owner if FILE has one that lives. `say` is
  // called with a line for the user before a wait, `give_up` now and then during it; what that
  // throws ends the wait.
  OwnerFile(std::filesystem::path file, const std::string& refusal,
            const std::function<void(const std::string&)>& say, Times times,
            const std::function<void()>& give_up = {});
  ~OwnerFile();
  OwnerFile(const OwnerFile&) = delete;
  OwnerFile& operator=(const OwnerFile&) = delete;

  // ReplacedError if another process has taken over; Error if that cannot be told now.
  void check() const;
  // Whether another process has certainly taken over.
  bool replaced() const;
  // Names this process in FILE.
  const std::string& token() const { return self_.token; }
  // Whether this process has put another one off that may still live.
  bool took_over() const { return took_over_; }

  // Does what the constructor does with a file that is there, but makes none: UserError if its
  // owner lives, else the file is removed. True if it may live all the same.
  static bool expect_none(const std::filesystem::path& file, const std::string& refusal,
                          const std::function<void(const std::string&)>& say, Times times,
                          const std::function<void()>& give_up = {});

 private:
  void show_life();

  const std::filesystem::path file_;
  const Times times_;
  const ProcessIdentity self_ = ProcessIdentity::own();
  bool took_over_ = false;
  std::atomic<bool> lost_{false};
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tessera
