// The run folder, tried out. Rank 0 makes a folder in it for the trials:
//
//   RUN/.doctor-0123456789abcdef/mark       seen by all ranks?
//                               /lock       locked by rank 0: are others kept out?
//                               /flag       replaced by rename again and again, while another reads
//                               /speed-R    written and read by the first rank of each node
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <random>
#include <sstream>

#include "base/error.h"
#include "base/files/files.h"
#include "base/files/free_space.h"
#include "base/files/late_file.h"
#include "base/files/try_folder.h"
#include "base/system_error.h"
#include "base/text/error_text.h"
#include "doctor/measure/gather.h"
#include "doctor/measure/measure.h"
#include "parallel/comm/core/file_work.h"

namespace tessera::doctor {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kPrefix = ".doctor-";
constexpr std::chrono::seconds kVisibleAfter{2};
constexpr int kRenames = 50;
constexpr size_t kFlagBytes = 64;
constexpr char kLast = 'z';
constexpr std::chrono::seconds kReadFor{5};
constexpr int64_t kSpeedBytes = int64_t{64} << 20;
constexpr int64_t kPieceBytes = int64_t{4} << 20;
constexpr double kSpeedSeconds = 2.0;
constexpr int64_t kLeaveFree = int64_t{1} << 30;  // a fuller disk is not filled further

double seconds_since(Clock::time_point begun) {
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

// The folder of the trials, with the folders above it that were missing; gone with the object.
class TrialFolder {
 public:
  explicit TrialFolder(const fs::path& folder) {
    remove_old(folder);
    for (fs::path above = fs::absolute(folder).lexically_normal();
         !above.empty() && type_of(above) == fs::file_type::not_found; above = above.parent_path())
      made_.push_back(above);
    make_folders(folder);
    std::random_device random;
    name_ = fmt::format("{}{:08x}{:08x}", kPrefix, random(), random());
    path_ = folder / name_;
    make_folders(path_);
    File::create(path_ / "mark").close();
  }
  ~TrialFolder() {
    if (!path_.empty()) static_cast<void>(remove_tree(path_));
    std::error_code ignored;
    for (const fs::path& path : made_) fs::remove(path, ignored);  // only if it is empty
  }
  TrialFolder(const TrialFolder&) = delete;
  TrialFolder& operator=(const TrialFolder&) = delete;

  const std::string& name() const { return name_; }

 private:
  // What a killed doctor left, not what another one is at work in.
  static void remove_old(const fs::path& folder) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (!entry.path().filename().string().starts_with(kPrefix)) continue;
      const auto changed = entry.last_write_time(error);
      if (!error && fs::file_time_type::clock::now() - changed > std::chrono::hours(1))
        static_cast<void>(remove_tree(entry.path()));
    }
  }

  std::vector<fs::path> made_;  // the deepest first
  std::string name_;
  fs::path path_;
};

std::string text_of_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// What this rank sees of the folder. `looks`: it also tries it for its node.
FolderView look_at(const fs::path& folder, const std::string& name, int rank, bool looks) {
  FolderView view;
  view.rank = rank;
  view.looked = looks;
  std::error_code error;
  view.path = fs::absolute(folder, error).lexically_normal().string();
  try {
    view.visible = wait_until_visible(folder / name / "mark", std::nullopt, kVisibleAfter);
    if (!view.visible) return view;
    if (looks) view.lacks = try_folder(folder);
    if (::access(folder.c_str(), W_OK) != 0) view.error = reason_of(errno);
  } catch (const Error& failure) {
    view.error = without_subsystem(failure.what());
  }
  view.file_system =
      file_system_of(text_of_file("/proc/self/mountinfo"), fs::canonical(folder, error).string());
  view.free = free_bytes(folder).value_or(-1);
  return view;
}

// An open file that may hold a lock.
class LockFile {
 public:
  explicit LockFile(const fs::path& path)
      : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)),
        error_(fd_ < 0 ? errno : 0) {}
  ~LockFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

  // 0 or an errno.
  int lock() const {
    if (fd_ < 0) return error_;
    return ::flock(fd_, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  }

 private:
  int fd_;
  int error_;
};

// Whether a lock that somebody else holds keeps this open file out.
std::string try_held_lock(const fs::path& path) {
  const int error = LockFile(path).lock();
  if (error == EWOULDBLOCK) return "held";
  return error == 0 ? "not held" : reason_of(error);
}

// Rank 0 locks, the ranks of `triers` try. Collective.
void try_locks(Communicator& world, const fs::path& path, bool tries, FolderView& view) {
  if (world.rank() == 0) {
    const LockFile file(path);
    const int error = file.lock();
    view.lock = error == 0 ? try_held_lock(path) : reason_of(error);
    world.barrier().block();
    world.barrier().block();  // the others have tried
    return;
  }
  world.barrier().block();
  if (tries) view.lock = try_held_lock(path);
  world.barrier().block();
}

void replace_flag(const fs::path& folder, char sign) {
  const fs::path next = folder / "next";
  File file = File::create(next);
  const std::string text(kFlagBytes, sign);
  file.write_at(text.data(), static_cast<int64_t>(text.size()), 0);
  file.close();
  rename_path(next, folder / "flag");
}

// How often the file is neither what it was nor what it becomes, until it is the last one.
int count_odd_reads(const fs::path& flag) {
  int odd = 0;
  for (const auto begun = Clock::now(); Clock::now() - begun < kReadFor;) {
    const std::string text = text_of_file(flag);
    const bool whole =
        text.size() == kFlagBytes && text.find_first_not_of(text[0]) == std::string::npos;
    if (!whole) ++odd;
    if (whole && text[0] == kLast) break;
  }
  return odd;
}

// Rank 0 replaces a file by rename, `reader` (or nobody, -1) reads it meanwhile. Collective.
void try_renames(Communicator& world, const fs::path& folder, int reader, FolderView& view,
                 int& renames, int& odd_reads) {
  const auto replace = [&](char sign) {
    if (!view.error.empty()) return;
    try {
      replace_flag(folder, sign);
      ++renames;
    } catch (const Error& failure) {
      view.error = without_subsystem(failure.what());
    }
  };
  if (world.rank() == 0) replace('a');
  world.barrier().block();
  if (world.rank() == 0) {
    for (int i = 1; i + 1 < kRenames; ++i) replace(static_cast<char>('a' + i % 2));
    replace(kLast);
  }
  if (world.rank() == reader) odd_reads = count_odd_reads(folder / "flag");
  world.barrier().block();
}

// Bytes per second of writing a file with all of it on the disk at the end, then of reading it.
void measure_speed(const fs::path& path, FolderView& view) {
  std::vector<uint64_t> piece(static_cast<size_t>(kPieceBytes) / sizeof(uint64_t));
  std::mt19937_64 random;  // some file systems compress, or leave out zeros
  for (uint64_t& word : piece) word = random();
  try {
    File file = File::create(path);
    int64_t size = 0;
    auto begun = Clock::now();
    for (; size < kSpeedBytes && seconds_since(begun) < kSpeedSeconds; size += kPieceBytes)
      file.write_at(piece.data(), kPieceBytes, size);
    file.sync();
    file.close();
    view.write_bytes_per_s = static_cast<double>(size) / seconds_since(begun);

    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
      posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);  // read from the disk, not from memory
      ::close(fd);
    }
    const File again = File::open(path);
    int64_t read = 0;
    begun = Clock::now();
    for (; read < size && seconds_since(begun) < kSpeedSeconds; read += kPieceBytes)
      again.read_at(piece.data(), kPieceBytes, read);
    view.read_bytes_per_s = static_cast<double>(read) / seconds_since(begun);
  } catch (const Error& failure) {
    view.error = without_subsystem(failure.what());
  }
}

}  // namespace

std::string file_system_of(const std::string& mounts, const std::string& path) {
  std::istringstream in(mounts);
  std::string best, found;
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    std::string skip, point, type, source;
    fields >> skip >> skip >> skip >> skip >> point;
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos || point.empty()) continue;
    std::istringstream(line.substr(dash + 3)) >> type >> source;
    const std::string below = point == "/" ? point : point + "/";
    if (path != point && !path.starts_with(below)) continue;
    if (point.size() < best.size()) continue;  // of equal points the later one lies on top
    best = point;
    found = fmt::format("{} ({})", type, source);
  }
  return found;
}

FolderFacts try_run_folder(Communicator& world, const fs::path& folder,
                           const std::vector<Node>& nodes, bool speed) {
  const FileWork file_work;  // ranks wait for each other's disks
  const int rank = world.rank();
  FolderFacts facts;
  std::optional<TrialFolder> trial;
  std::string begun;  // the name of the trials' folder, or ! and why there is none
  if (rank == 0) {
    try {
      begun = trial.emplace(folder).name();
    } catch (const std::exception& failure) {
      begun = "!" + without_subsystem(failure.what());
    }
  }
  begun = text_of_rank_0(world, begun);
  if (begun.starts_with('!')) {
    facts.error = begun.substr(1);
    return facts;
  }

  bool first_of_node = false;
  for (const Node& node : nodes) first_of_node = first_of_node || node.ranks[0] == rank;
  FolderView view = look_at(folder, begun, rank, first_of_node);
  const std::vector<int> visible = gather(world, view.visible ? 1 : 0);
  // The best witness of what rank 0 does is on another node.
  const int witness = nodes.size() > 1 ? nodes[1].ranks[0] : world.size() > 1 ? 1 : -1;
  facts.reader = witness >= 0 && visible[static_cast<size_t>(witness)] != 0 ? witness : -1;

  const fs::path trials = folder / begun;
  try_locks(world, trials / "lock", view.visible && (first_of_node || rank == witness), view);
  int renames = 0, odd_reads = 0;
  try_renames(world, trials, facts.reader, view, renames, odd_reads);
  const bool room = view.free < 0 || view.free > kLeaveFree;
  if (speed && first_of_node && view.visible && view.error.empty() && room)
    measure_speed(trials / fmt::format("speed-{}", rank), view);

  facts.views = gather(world, view);
  facts.renames = gather(world, renames)[0];
  const std::vector<int> odd = gather(world, odd_reads);
  if (facts.reader >= 0) facts.odd_reads = odd[static_cast<size_t>(facts.reader)];
  return facts;  // all have done their work: rank 0 removes the folder
}

}  // namespace tessera::doctor
