#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>

namespace tessera {

// Writes one data set PREFIX.bin and .idx of u8 tokens in Megatron's layout, as a stream: the parts
// of the index wait in scratch files, so memory stays the same however many documents there are.
//
// finish() completes and syncs both files under temporary names; publish_tokens() and then
// publish_index() rename them (PackTarget says when, and syncs the folder). The destructor removes
// what was not published.
class IndexedWriter {
 public:
  // Makes the parent folders. UserError if the files cannot be written.
  explicit IndexedWriter(const std::filesystem::path& prefix);
  ~IndexedWriter();
  IndexedWriter(const IndexedWriter&) = delete;
  IndexedWriter& operator=(const IndexedWriter&) = delete;

  void add(std::span<const char> bytes);
  void end_document();  // no document is empty: without bytes since the last one it does nothing

  void finish();
  void publish_tokens();
  void publish_index();

  int64_t documents() const { return documents_; }
  int64_t tokens() const { return tokens_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using Stream = std::unique_ptr<std::FILE, Close>;

  Stream open(const std::filesystem::path& path) const;
  void write(std::FILE* file, const void* data, size_t bytes) const;
  void end_sequence();
  void write_index();
  void copy_from(std::FILE* scratch);
  void sync(Stream file) const;

  std::filesystem::path bin_path_, idx_path_, bin_temporary_, idx_temporary_;
  Stream bin_, idx_, lengths_, document_ends_;
  int64_t sequences_ = 0, documents_ = 0, tokens_ = 0;
  int64_t sequence_tokens_ = 0, document_tokens_ = 0;
};

}  // namespace tessera
