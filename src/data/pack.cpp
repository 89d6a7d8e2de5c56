#include "data/pack.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <span>

#include "base/error.h"
#include "base/files/files.h"
#include "base/files/try_folder.h"
#include "data/indexed_writer.h"
#include "data/pack_target.h"
#include "data/text_check.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

constexpr size_t kBufferBytes = 1 << 20;

// The inputs, read one after the other as one row of bytes.
struct Input {
  fs::path path;
  int64_t begin;  // in the row
  int64_t size;
};

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

std::unique_ptr<std::FILE, Close> open_input(const fs::path& path) {
  std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rb"));
  if (!file) {
    fail_user("data", "cannot read {}: {}; check its permissions", path.string(),
              std::strerror(errno));
  }
  return file;
}

// The size of an input, which must be a file with something in it.
int64_t checked_size(const fs::path& path) {
  const fs::file_type type = type_of_input(path);
  if (type == fs::file_type::not_found)
    fail_user("data", "input {} does not exist; check the path", path.string());
  if (type == fs::file_type::directory) {
    fail_user("data", "input {} is a folder; give the files in it, such as {}/*.txt", path.string(),
              clean_path(path).string());
  }
  if (type != fs::file_type::regular) {
    fail_user("data",
              "input {} is no regular file but a pipe or a device; write what comes out of it into "
              "a file and give that",
              path.string());
  }
  std::error_code error;
  const auto size = static_cast<int64_t>(fs::file_size(path, error));
  if (error) fail_user("data", "cannot read {}: {}", path.string(), error.message());
  if (size == 0) fail_user("data", "input {} is empty: 0 bytes; leave it out", path.string());
  return size;
}

void check_head(const fs::path& path) {
  const auto file = open_input(path);
  std::vector<char> head(kTextHeadBytes);
  head.resize(std::fread(head.data(), 1, head.size(), file.get()));
  check_text_head(path, head);
}

// Every input is looked at before the first is read.
std::vector<Input> look_up(const std::vector<fs::path>& paths, const PackOptions& options) {
  if (paths.empty()) fail_user("data", "nothing to pack: no input files");
  std::vector<Input> inputs;
  std::set<fs::path> seen;
  int64_t begin = 0;
  for (const fs::path& path : paths) {
    const int64_t size = checked_size(path);
    std::error_code moved;  // meanwhile; then it is read, or not, by its own name
    const fs::path real = fs::canonical(path, moved);
    if (options.valid_fraction > 0.0 && !seen.insert(moved ? path : real).second) {
      fail_user("data",
                "input {} is given twice; with a part held out one copy could be trained on and "
                "the other validated with: give it once, or valid_fraction 0",
                path.string());
    }
    if (!options.any_bytes) check_head(path);
    inputs.push_back({path, begin, size});
    begin += size;
  }
  return inputs;
}

// Calls visit(bytes, position of their first) for each block of an input.
template <typename Visit>
void for_each_block(const Input& input, Visit visit) {
  const auto file = open_input(input.path);
  std::vector<char> buffer(kBufferBytes);
  int64_t done = 0;
  for (size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), file.get())) > 0;) {
    visit(std::span<const char>(buffer.data(), n), input.begin + done);
    done += static_cast<int64_t>(n);
  }
  if (std::ferror(file.get())) {
    fail_user("data", "reading {} failed at byte {}: {}", input.path.string(), done,
              std::strerror(errno));
  }
  if (done != input.size) {
    fail_user("data", "{} changed while it was read: {} bytes, then {}; pack it when it is whole",
              input.path.string(), input.size, done);
  }
}

// Calls visit(bytes) for each piece of a block that ends with a newline, and for the rest.
template <typename Visit>
void for_each_line(std::span<const char> block, Visit visit) {
  while (!block.empty()) {
    const void* newline = std::memchr(block.data(), '\n', block.size());
    const size_t n = newline ? static_cast<const char*>(newline) - block.data() + 1 : block.size();
    visit(block.first(n));
    block = block.subspan(n);
  }
}

// The position nearest to `wanted` at which the row may be cut; both sides keep at least one byte.
int64_t cut_position(const std::vector<Input>& inputs, const PackOptions& options) {
  const int64_t total = inputs.back().begin + inputs.back().size;
  const double wanted = static_cast<double>(total) * (1.0 - options.valid_fraction);
  std::optional<int64_t> best;
  const auto offer = [&](int64_t position) {
    if (position <= 0 || position >= total) return;
    if (!best || std::abs(static_cast<double>(position) - wanted) <
                     std::abs(static_cast<double>(*best) - wanted)) {
      best = position;
    }
  };
  for (const Input& input : inputs) offer(input.begin);
  if (options.document_per_line || inputs.size() == 1) {
    for (const Input& input : inputs) {
      for_each_block(input, [&](std::span<const char> block, int64_t position) {
        for_each_line(block, [&](std::span<const char> line) {
          position += static_cast<int64_t>(line.size());
          if (line.back() == '\n') offer(position);
        });
      });
    }
  }
  if (!best) {
    fail_user(
        "data",
        "valid_fraction {}: {} bytes in one document of one line cannot be cut; give a second "
        "document, or 0",
        options.valid_fraction, total);
  }
  return *best;
}

// None of the inputs may be a file that the pack writes.
void check_not_input(const PackTarget& target, const std::vector<fs::path>& inputs) {
  for (const fs::path& output : target.files()) {
    for (const fs::path& input : inputs) {
      std::error_code ignored;
      if (fs::equivalent(input, output, ignored))
        fail_user("data", "{} is an input and would be overwritten; choose another output prefix",
                  output.string());
    }
  }
}

}  // namespace

PackResult pack_bytes(const std::vector<fs::path>& paths, const std::string& out_prefix,
                      const PackOptions& options) {
  if (!(options.valid_fraction >= 0.0 && options.valid_fraction < 1.0)) {
    fail_user("data", "valid_fraction {}; it must be at least 0 and below 1",
              options.valid_fraction);
  }
  const PackTarget target(out_prefix, options.replace);
  check_not_input(target, paths);
  const std::vector<Input> inputs = look_up(paths, options);
  const bool hold_out = options.valid_fraction > 0.0;
  const int64_t cut =
      hold_out ? cut_position(inputs, options) : std::numeric_limits<int64_t>::max();

  IndexedWriter train(target.train());
  std::optional<IndexedWriter> valid;
  if (hold_out) valid.emplace(target.valid());
  PackResult result;
  result.lacks = try_folder(folder_of(out_prefix));

  // The cut lies at a line end, so that a line goes to one side as a whole.
  const auto add = [&](std::span<const char> bytes, int64_t position) {
    IndexedWriter& writer = position < cut ? train : *valid;
    writer.add(bytes);
    if (options.document_per_line && bytes.back() == '\n') writer.end_document();
  };
  for (const Input& input : inputs) {
    Utf8Check text(input.path);
    for_each_block(input, [&](std::span<const char> block, int64_t position) {
      if (!options.any_bytes) text.add(block);
      for_each_line(block, [&](std::span<const char> line) {
        add(line, position);
        position += static_cast<int64_t>(line.size());
      });
    });
    if (!options.any_bytes) text.finish();
    train.end_document();
    if (valid) valid->end_document();
  }

  train.finish();
  if (valid) valid->finish();
  result.removed = target.publish(train, valid ? &*valid : nullptr);
  result.documents = train.documents();
  result.tokens = train.tokens();
  if (valid) {
    result.valid_documents = valid->documents();
    result.valid_tokens = valid->tokens();
  }
  return result;
}

}  // namespace tessera
