#include "data/pack.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>

#include "base/error.h"
#include "data/pair_writer.h"

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

std::vector<Input> look_up(const std::vector<fs::path>& paths) {
  if (paths.empty()) fail_user("data", "nothing to pack: no input files");
  std::vector<Input> inputs;
  int64_t begin = 0;
  for (const fs::path& path : paths) {
    if (!fs::exists(path)) fail_user("data", "input {} does not exist", path.string());
    if (!fs::is_regular_file(path))
      fail_user("data", "input {} is not a regular file", path.string());
    const auto size = static_cast<int64_t>(fs::file_size(path));
    if (size == 0) fail_user("data", "input {} is empty: 0 bytes", path.string());
    inputs.push_back({path, begin, size});
    begin += size;
  }
  return inputs;
}

// Calls visit(bytes, position of their first) for each block of an input.
template <typename Visit>
void for_each_block(const Input& input, Visit visit) {
  const auto close = [](std::FILE* f) { std::fclose(f); };
  const std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(input.path.c_str(), "rb"),
                                                         close);
  if (!file) fail_user("data", "cannot read {}: {}", input.path.string(), std::strerror(errno));
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
    fail_user("data", "{} changed while it was read: {} bytes, then {}", input.path.string(),
              input.size, done);
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

// The prefix must name files, and none of those that are read.
void check_prefix(const std::string& prefix, const std::vector<fs::path>& inputs) {
  if (fs::path(prefix).filename().empty())
    fail_user("data", "the output prefix '{}' names no file; give one such as data/mine", prefix);
  for (const char* name : {"", "-valid"}) {
    for (const char* ending : {".bin", ".idx"}) {
      const std::string output = prefix + name + ending;
      for (const fs::path& input : inputs) {
        std::error_code ignored;
        if (fs::equivalent(input, output, ignored))
          fail_user("data", "{} is an input and would be overwritten; choose another output prefix",
                    output);
      }
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
  const std::vector<Input> inputs = look_up(paths);
  check_prefix(out_prefix, paths);
  const bool hold_out = options.valid_fraction > 0.0;
  const int64_t cut =
      hold_out ? cut_position(inputs, options) : std::numeric_limits<int64_t>::max();

  PairWriter train(out_prefix);
  std::optional<PairWriter> valid;
  if (hold_out) valid.emplace(out_prefix + "-valid");

  // The cut lies at a line end, so that a line goes to one side as a whole.
  const auto add = [&](std::span<const char> bytes, int64_t position) {
    PairWriter& writer = position < cut ? train : *valid;
    writer.add(bytes);
    if (options.document_per_line && bytes.back() == '\n') writer.end_document();
  };
  for (const Input& input : inputs) {
    for_each_block(input, [&](std::span<const char> block, int64_t position) {
      for_each_line(block, [&](std::span<const char> line) {
        add(line, position);
        position += static_cast<int64_t>(line.size());
      });
    });
    train.end_document();
    if (valid) valid->end_document();
  }

  train.finish();
  if (valid) valid->finish();
  if (valid) valid->commit();
  train.commit();
  PackResult result{train.documents(), train.tokens(), 0, 0};
  if (valid) {
    result.valid_documents = valid->documents();
    result.valid_tokens = valid->tokens();
  }
  return result;
}

}  // namespace tessera
