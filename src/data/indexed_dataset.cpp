#include "data/indexed_dataset.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/data_file.h"
#include "data/fingerprint.h"
#include "data/megatron_layout.h"

namespace tessera {
namespace {

// Bytes of a token.
int64_t token_size(TokenType type) {
  switch (type) {
    case TokenType::kU8:
    case TokenType::kI8:
      return 1;
    case TokenType::kI16:
    case TokenType::kU16:
      return 2;
    case TokenType::kI32:
      return 4;
    case TokenType::kI64:
      return 8;
  }
  fail("data", "token type {} is not known", static_cast<int>(type));
}

const char* token_name(TokenType type) {
  switch (type) {
    case TokenType::kU8:
      return "u8";
    case TokenType::kI8:
      return "i8";
    case TokenType::kI16:
      return "i16";
    case TokenType::kU16:
      return "u16";
    case TokenType::kI32:
      return "i32";
    case TokenType::kI64:
      return "i64";
  }
  fail("data", "token type {} is not known", static_cast<int>(type));
}

TokenType checked_type(const std::string& path, uint8_t code) {
  if (code == 6 || code == 7) {
    fail_user("data",
              "{}: dtype {} at byte {} is {}; token ids are integers (1 u8, 2 i8, 3 i16, 4 i32, "
              "5 i64, 8 u16)",
              path, code, megatron::kDtypeAt, code == 6 ? "f64" : "f32");
  }
  if (code < 1 || code > 8) {
    fail_user("data",
              "{}: dtype {} at byte {} is not known; it must be 1 u8, 2 i8, 3 i16, 4 i32, 5 i64 "
              "or 8 u16",
              path, code, megatron::kDtypeAt);
  }
  return static_cast<TokenType>(code);
}

bool is_there(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// A data set is named by the path of its two files without the ending. If `prefix` is what people
// often give instead (a folder, one of the two files, a text), a UserError says so, rather than
// that the data set is missing.
const std::string& checked_prefix(const std::string& prefix) {
  if (is_there(prefix + ".idx") || !is_there(prefix)) return prefix;
  std::error_code error;
  if (std::filesystem::is_directory(prefix, error))
    fail_user("data",
              "{} is a folder; a data set is named by the path of its .bin and .idx without the "
              "ending, such as {}",
              prefix, (std::filesystem::path(prefix) / "mine").string());
  const std::filesystem::path path = prefix;
  const std::string bare = (path.parent_path() / path.stem()).string();
  if ((path.extension() == ".bin" || path.extension() == ".idx") && is_there(bare + ".idx"))
    fail_user("data", "{} is one file of a data set, which is named without the ending: {}", prefix,
              bare);
  fail_user("data",
            "{} is a file and no data set, which is a .bin and an .idx file, named without the "
            "ending; text becomes one with `tessera data pack {} --out data/mine`",
            prefix, prefix);
}

template <typename T>
void widen(const DataFile& file, int64_t from, std::span<int64_t> out) {
  std::vector<T> tokens(out.size());
  file.read(from, std::as_writable_bytes(std::span(tokens)));
  std::copy(tokens.begin(), tokens.end(), out.begin());
}

// out <- the tokens of .bin from byte `from` on.
void widen_tokens(TokenType type, const DataFile& file, int64_t from, std::span<int64_t> out) {
  switch (type) {
    case TokenType::kU8:
      return widen<uint8_t>(file, from, out);
    case TokenType::kI8:
      return widen<int8_t>(file, from, out);
    case TokenType::kI16:
      return widen<int16_t>(file, from, out);
    case TokenType::kU16:
      return widen<uint16_t>(file, from, out);
    case TokenType::kI32:
      return widen<int32_t>(file, from, out);
    case TokenType::kI64:
      return widen<int64_t>(file, from, out);
  }
}

}  // namespace

// Everything that is read from the index is checked here, once, against the sizes of the two files;
// read() trusts it. Nothing is allocated from a count in a file before the file has been found long
// enough to hold that many entries.
struct IndexedDataset::Impl {
  std::string prefix;
  DataFile idx;
  DataFile bin;
  TokenType type{};
  int64_t sequences = 0;
  int64_t document_entries = 0;
  int64_t other_modes = 0;
  int64_t tokens = 0;
  // First token of each sequence in the stream, and the total at the end. Empty if the sequences
  // lie back to back in .bin, as Megatron's own writer leaves them: then the stream is the file.
  std::vector<int64_t> first_token;

  explicit Impl(const std::string& data_prefix)
      : prefix(checked_prefix(data_prefix)), idx(data_prefix + ".idx"), bin(data_prefix + ".bin") {
    read_header();
    check_documents();
    check_sequences();
  }

  int64_t length(int64_t sequence) const { return idx.load<int32_t>(lengths_at() + 4 * sequence); }
  int64_t offset(int64_t sequence) const { return idx.load<int64_t>(offsets_at() + 8 * sequence); }
  static int64_t lengths_at() { return megatron::kHeaderBytes; }
  int64_t offsets_at() const { return megatron::kHeaderBytes + 4 * sequences; }
  int64_t documents_at() const { return megatron::kHeaderBytes + 12 * sequences; }

  void read_header() {
    const std::string& path = idx.path();
    if (idx.size() < megatron::kHeaderBytes) {
      fail_user("data", "{}: {} bytes are too few for an index; its header alone has {}", path,
                idx.size(), megatron::kHeaderBytes);
    }
    const auto header = idx.read(0, megatron::kHeaderBytes);
    if (std::memcmp(header.data(), megatron::kMagic.data(), megatron::kMagic.size()) != 0) {
      fail_user("data", "{}: the magic at byte 0 is not MMIDIDX; this is no Megatron index{}", path,
                std::memcmp(header.data(), "TNTIDX", 6) == 0
                    ? " but one of its older layout: write it anew with Megatron's mmap data"
                    : "");
    }
    const auto version = megatron::load<uint64_t>(header.data() + megatron::kVersionAt);
    if (version != megatron::kVersion) {
      fail_user("data", "{}: version {} at byte {}; only version {} is known", path, version,
                megatron::kVersionAt, megatron::kVersion);
    }
    type = checked_type(path, megatron::load<uint8_t>(header.data() + megatron::kDtypeAt));

    const auto s = megatron::load<uint64_t>(header.data() + megatron::kSequencesAt);
    const auto d = megatron::load<uint64_t>(header.data() + megatron::kDocumentsAt);
    // Compared by division: 34 + 12 S + 8 D of forged counts overflows.
    const auto body = static_cast<uint64_t>(idx.size() - megatron::kHeaderBytes);
    const bool fits = s <= body / 12 && d <= (body - 12 * s) / 8;
    const uint64_t rest = fits ? body - 12 * s - 8 * d : 0;
    if (!fits || (rest != 0 && rest != s)) {
      fail_user("data",
                "{}: {} sequences and {} document entries (bytes {} and {}) need 34 + 12 x {} + "
                "8 x {} bytes, and one byte more for each sequence in multimodal data; the file "
                "has {}",
                path, s, d, megatron::kSequencesAt, megatron::kDocumentsAt, s, d, idx.size());
    }
    sequences = static_cast<int64_t>(s);
    document_entries = static_cast<int64_t>(d);
    count_modes(static_cast<int64_t>(rest));
    if (bin.size() % token_size(type) != 0) {
      fail_user("data", "{}: {} bytes are not a multiple of the token size {}", bin.path(),
                bin.size(), token_size(type));
    }
  }

  // The last `count` bytes of the index, one a sequence; 0 stands for text.
  void count_modes(int64_t count) {
    DataColumn<uint8_t> modes(idx, idx.size() - count, count);
    for (int64_t i = 0; i < count; ++i) other_modes += modes[i] != 0 ? 1 : 0;
  }

  void check_documents() const {
    DataColumn<int64_t> documents(idx, documents_at(), document_entries);
    if (document_entries == 0 || documents[0] != 0) {
      fail_user("data", "{}: the document array {}; it must start with 0", idx.path(),
                document_entries == 0 ? "is empty" : fmt::format("starts with {}", documents[0]));
    }
    for (int64_t i = 1, before = 0; i < document_entries; ++i) {
      const int64_t document = documents[i];
      if (document < before || document > sequences) {
        fail_user("data",
                  "{}: document array entry {} is {} after {}; entries must not fall and must "
                  "not pass the number of sequences, {}",
                  idx.path(), i, document, before, sequences);
      }
      before = document;
    }
  }

  void check_sequences() {
    const int64_t size = token_size(type);
    bool back_to_back = true;
    DataColumn<int32_t> lengths(idx, lengths_at(), sequences);
    DataColumn<int64_t> offsets(idx, offsets_at(), sequences);
    for (int64_t i = 0; i < sequences; ++i) {
      const int64_t n = lengths[i];
      const int64_t at = offsets[i];
      if (n < 0) fail_user("data", "{}: sequence {} has length {}", idx.path(), i, n);
      if (at < 0 || at % size != 0) {
        fail_user("data",
                  "{}: sequence {} starts at byte {} of .bin; offsets are multiples of the token "
                  "size {}",
                  idx.path(), i, at, size);
      }
      if (at > bin.size() || n > (bin.size() - at) / size) {
        fail_user("data",
                  "{}: sequence {} of {} tokens at byte {} ends past {}, which has {} bytes",
                  idx.path(), i, n, at, bin.path(), bin.size());
      }
      back_to_back = back_to_back && at == tokens * size;
      // Sequences that do not overlap cannot hold more tokens than the file. Compared in this way
      // nothing overflows.
      if (tokens > bin.size() / size - n) {
        fail_user("data", "{}: its sequences overlap: the first {} have {} tokens, {} holds {}",
                  idx.path(), i + 1, tokens + n, bin.path(), bin.size() / size);
      }
      tokens += n;
    }
    if (tokens == 0) fail_user("data", "{}: no tokens in {} sequences", idx.path(), sequences);
    if (!back_to_back) {
      index_scattered_sequences();
    } else if (tokens != bin.size() / size) {
      fail_user("data",
                "{}: its sequences have {} tokens, {} has {}; the two files do not belong together",
                idx.path(), tokens, bin.path(), bin.size() / size);
    }
  }

  // Sequences in any order and with gaps, as after filtering or shuffling an index.
  void index_scattered_sequences() {
    struct Place {
      int64_t offset, length, sequence;
    };
    std::vector<Place> order;  // by offset; an empty sequence overlaps nothing
    first_token.resize(static_cast<size_t>(sequences) + 1, 0);
    DataColumn<int32_t> lengths(idx, lengths_at(), sequences);
    DataColumn<int64_t> offsets(idx, offsets_at(), sequences);
    for (int64_t i = 0; i < sequences; ++i) {
      const int64_t n = lengths[i];
      first_token[i + 1] = first_token[i] + n;
      if (n > 0) order.push_back({offsets[i], n, i});
    }
    std::sort(order.begin(), order.end(),
              [](const Place& a, const Place& b) { return a.offset < b.offset; });
    for (size_t i = 1; i < order.size(); ++i) {
      const int64_t end = order[i - 1].offset + order[i - 1].length * token_size(type);
      if (order[i].offset < end) {
        fail_user("data",
                  "{}: sequences {} and {} overlap: one ends at byte {} of .bin, the other starts "
                  "at {}",
                  idx.path(), order[i - 1].sequence, order[i].sequence, end, order[i].offset);
      }
    }
  }

  void check_sequence(int64_t sequence) const {
    if (sequence < 0 || sequence >= sequences)
      fail("data", "{}: sequence {}; there are {}", prefix, sequence, sequences);
  }

  void read(int64_t begin, std::span<int64_t> out) const {
    const auto count = static_cast<int64_t>(out.size());
    if (begin < 0 || count > tokens || begin > tokens - count) {
      fail("data", "{}: tokens [{}, {} + {}) are outside its {} tokens", prefix, begin, begin,
           count, tokens);
    }
    const int64_t size = token_size(type);
    if (first_token.empty()) return widen_tokens(type, bin, begin * size, out);
    auto next = std::upper_bound(first_token.begin(), first_token.end(), begin);
    auto sequence = static_cast<int64_t>(next - first_token.begin()) - 1;
    while (!out.empty()) {
      const int64_t inside = begin - first_token[sequence];
      const int64_t n = std::min(length(sequence) - inside, static_cast<int64_t>(out.size()));
      widen_tokens(type, bin, offset(sequence) + inside * size, out.first(n));
      out = out.subspan(n);
      begin += n;
      ++sequence;
    }
  }
};

IndexedDataset::IndexedDataset(const std::string& prefix) : impl_(std::make_unique<Impl>(prefix)) {}
IndexedDataset::~IndexedDataset() = default;
IndexedDataset::IndexedDataset(IndexedDataset&&) noexcept = default;
IndexedDataset& IndexedDataset::operator=(IndexedDataset&&) noexcept = default;

const std::string& IndexedDataset::prefix() const {
  return impl_->prefix;
}
int64_t IndexedDataset::num_tokens() const {
  return impl_->tokens;
}
int64_t IndexedDataset::num_sequences() const {
  return impl_->sequences;
}
int64_t IndexedDataset::num_documents() const {
  return impl_->document_entries - 1;
}
TokenType IndexedDataset::token_type() const {
  return impl_->type;
}
int64_t IndexedDataset::num_other_modes() const {
  return impl_->other_modes;
}

int64_t IndexedDataset::sequence_begin(int64_t sequence) const {
  impl_->check_sequence(sequence);
  return impl_->first_token.empty() ? impl_->offset(sequence) / token_size(impl_->type)
                                    : impl_->first_token[sequence];
}
int64_t IndexedDataset::sequence_length(int64_t sequence) const {
  impl_->check_sequence(sequence);
  return impl_->length(sequence);
}

std::string IndexedDataset::fingerprint() const {
  return fmt::format("{} {} tokens {} sequences xxh3 {}", token_name(impl_->type), impl_->tokens,
                     impl_->sequences, dataset_digest(impl_->idx, impl_->bin));
}

void IndexedDataset::read(int64_t begin, std::span<int64_t> out) const {
  impl_->read(begin, out);
}

}  // namespace tessera
