#include "data/indexed_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <limits>

#include "data/data_files.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using testing::bytes_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Index;
using testing::user_error;
using testing::write_file;
using testing::write_pair;

std::vector<int64_t> all_tokens(const IndexedDataset& data) {
  std::vector<int64_t> tokens(static_cast<size_t>(data.num_tokens()));
  data.read(0, tokens);
  return tokens;
}

// Three sequences of 2, 0 and 3 u16 tokens in two documents, to be forged.
Index small_index() {
  Index index;
  index.dtype = 8;
  index.lengths = {2, 0, 3};
  index.offsets = {0, 4, 4};
  index.documents = {0, 2, 3};
  return index;
}
const std::vector<uint16_t> kSmallTokens = {10, 11, 12, 13, 65535};

class IndexedDatasetTest : public ::testing::Test {
 protected:
  // The error of a pair with this index; the message must name the file.
  std::string error_of(const Index& index, const std::string& bin = bytes_of(kSmallTokens)) {
    write_file(prefix_ + ".idx", index.bytes());
    write_file(prefix_ + ".bin", bin);
    std::string message = user_error([&] { IndexedDataset data(prefix_); });
    EXPECT_THAT(message, HasSubstr(prefix_));
    EXPECT_THAT(message, HasSubstr("[data] "));
    return message;
  }

  TemporaryFolder folder_;
  std::string prefix_ = folder_ / "text";
};

TEST_F(IndexedDatasetTest, ReadsSequencesAsOneStream) {
  write_file(prefix_ + ".idx", small_index().bytes());
  write_file(prefix_ + ".bin", bytes_of(kSmallTokens));
  const IndexedDataset data(prefix_);
  EXPECT_EQ(data.prefix(), prefix_);
  EXPECT_EQ(data.num_tokens(), 5);
  EXPECT_EQ(data.num_sequences(), 3);
  EXPECT_EQ(data.num_documents(), 2);
  EXPECT_EQ(data.token_type(), TokenType::kU16);
  EXPECT_THAT(all_tokens(data), ElementsAre(10, 11, 12, 13, 65535));
  std::vector<int64_t> middle(3);
  data.read(1, middle);
  EXPECT_THAT(middle, ElementsAre(11, 12, 13));
}

TEST_F(IndexedDatasetTest, ReadsEveryIntegerType) {
  const auto check = [&](uint8_t code, auto low, auto high) {
    using T = decltype(low);
    write_pair<T>(prefix_, code, {low, T{7}, high});
    EXPECT_THAT(all_tokens(IndexedDataset(prefix_)),
                ElementsAre(static_cast<int64_t>(low), 7, static_cast<int64_t>(high)))
        << "code " << int{code};
  };
  check(1, uint8_t{0}, uint8_t{255});
  check(2, int8_t{-128}, int8_t{127});
  check(3, int16_t{-32768}, int16_t{32767});
  check(4, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max());
  check(5, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
  check(8, uint16_t{0}, uint16_t{65535});
}

TEST_F(IndexedDatasetTest, ReadsScatteredSequencesInTheOrderOfTheIndex) {
  Index index = small_index();  // tokens 3..4, nothing, then 0..1; token 2 belongs to none
  index.lengths = {2, 0, 2};
  index.offsets = {6, 2, 0};
  write_file(prefix_ + ".idx", index.bytes());
  write_file(prefix_ + ".bin", bytes_of(kSmallTokens));
  const IndexedDataset data(prefix_);
  EXPECT_THAT(all_tokens(data), ElementsAre(13, 65535, 10, 11));
  std::vector<int64_t> middle(2);
  data.read(1, middle);
  EXPECT_THAT(middle, ElementsAre(65535, 10));
}

// Known fault: multimodal data have a byte more for each sequence.
TEST_F(IndexedDatasetTest, ReadsTheModesOfMultimodalData) {
  Index index = small_index();
  index.modes = {0, 0, 0};
  write_file(prefix_ + ".bin", bytes_of(kSmallTokens));
  write_file(prefix_ + ".idx", index.bytes());
  EXPECT_EQ(IndexedDataset(prefix_).num_other_modes(), 0);
  index.modes = {0, 1, -1};
  write_file(prefix_ + ".idx", index.bytes());
  const IndexedDataset data(prefix_);
  EXPECT_EQ(data.num_other_modes(), 2);
  EXPECT_EQ(data.num_documents(), 2);
  EXPECT_THAT(all_tokens(data), ElementsAre(10, 11, 12, 13, 65535));
  index.modes = {0, 0};
  EXPECT_THAT(error_of(index), HasSubstr("one byte more for each sequence in multimodal data"));
}

TEST_F(IndexedDatasetTest, ReadsEmptyDocumentsAndAnUnfinishedOne) {
  Index index = small_index();
  for (const std::vector<int64_t>& documents :
       {std::vector<int64_t>{0, 0, 2, 2, 3, 3}, {0}, {0, 1}}) {
    index.documents = documents;
    write_file(prefix_ + ".idx", index.bytes());
    write_file(prefix_ + ".bin", bytes_of(kSmallTokens));
    const IndexedDataset data(prefix_);
    EXPECT_EQ(data.num_documents(), static_cast<int64_t>(documents.size()) - 1);
    EXPECT_EQ(data.num_tokens(), 5);
  }
}

TEST_F(IndexedDatasetTest, RefusesToReadOutsideTheStream) {
  write_pair<uint8_t>(prefix_, 1, {1, 2, 3});
  const IndexedDataset data(prefix_);
  std::vector<int64_t> two(2);
  EXPECT_THROW(data.read(2, two), Error);
  EXPECT_THROW(data.read(-1, two), Error);
  EXPECT_THROW(data.read(std::numeric_limits<int64_t>::max(), two), Error);
}

TEST_F(IndexedDatasetTest, NamesAMissingFileAsItWasGiven) {
  EXPECT_THAT(user_error([] { IndexedDataset data("no/such/text"); }),
              HasSubstr("cannot open no/such/text.idx: No such file or directory"));
  write_pair<uint8_t>(prefix_, 1, {1, 2, 3});
  std::filesystem::remove(prefix_ + ".bin");
  EXPECT_THAT(user_error([&] { IndexedDataset data(prefix_); }),
              HasSubstr("cannot open " + prefix_ + ".bin"));
  std::filesystem::create_directory(prefix_ + ".bin");
  EXPECT_THAT(user_error([&] { IndexedDataset data(prefix_); }), HasSubstr("not a regular file"));
}

TEST_F(IndexedDatasetTest, NamesWhatIsOftenGivenInsteadOfAPrefix) {
  write_pair<uint8_t>(prefix_, 1, {1, 2, 3});
  const auto refusal = [](const std::string& prefix) {
    return user_error([&] { IndexedDataset data(prefix); });
  };
  for (const char* ending : {".bin", ".idx"})
    EXPECT_THAT(refusal(prefix_ + ending), HasSubstr("named without the ending: " + prefix_));
  EXPECT_THAT(refusal(folder_.path()), HasSubstr(folder_.path().string() + " is a folder"));
  write_file(prefix_ + ".txt", "text\n");
  EXPECT_THAT(refusal(prefix_ + ".txt"), HasSubstr("tessera data pack " + prefix_ + ".txt"));
  std::filesystem::create_directory(prefix_);  // a folder of the same name is no mistake
  EXPECT_EQ(IndexedDataset(prefix_).num_tokens(), 3);
}

// D02.
TEST_F(IndexedDatasetTest, RefusesEmptyFiles) {
  EXPECT_THAT(error_of(small_index(), ""), HasSubstr(prefix_ + ".bin is empty: 0 bytes"));
  write_file(prefix_ + ".idx", "");
  EXPECT_THAT(user_error([&] { IndexedDataset data(prefix_); }),
              HasSubstr(prefix_ + ".idx is empty: 0 bytes"));
  Index none;
  none.documents = {0};
  EXPECT_THAT(error_of(none, "x"), HasSubstr("no tokens in 0 sequences"));
  none.lengths = {0};
  none.offsets = {0};
  EXPECT_THAT(error_of(none, "x"), HasSubstr("no tokens in 1 sequences"));
}

// D01.
TEST_F(IndexedDatasetTest, RefusesABrokenTokenAtTheEnd) {
  Index index;
  index.dtype = 8;
  index.lengths = {1000};
  index.offsets = {0};
  index.documents = {0, 1};
  EXPECT_THAT(error_of(index, std::string(2001, 'x')),
              HasSubstr("2001 bytes are not a multiple of the token size 2"));
}

// D18.
TEST_F(IndexedDatasetTest, RefusesAForeignHeader) {
  Index index = small_index();
  index.magic[0] = 'X';
  EXPECT_THAT(error_of(index), HasSubstr("magic at byte 0 is not MMIDIDX"));
  index.magic = std::string("TNTIDX\0\0\0", 9);
  EXPECT_THAT(error_of(index), HasSubstr("one of its older layout"));
  index = small_index();
  index.version = 2;
  EXPECT_THAT(error_of(index), HasSubstr("version 2 at byte 9; only version 1"));
  write_file(prefix_ + ".idx", small_index().bytes().substr(0, 33));
  EXPECT_THAT(user_error([&] { IndexedDataset data(prefix_); }),
              HasSubstr("33 bytes are too few for an index"));
}

TEST_F(IndexedDatasetTest, RefusesOtherTypesByName) {
  Index index = small_index();
  const auto with = [&](uint8_t code) {
    index.dtype = code;
    return error_of(index);
  };
  EXPECT_THAT(with(6), HasSubstr("dtype 6 at byte 17 is f64"));
  EXPECT_THAT(with(7), HasSubstr("dtype 7 at byte 17 is f32"));
  EXPECT_THAT(with(0), HasSubstr("dtype 0 at byte 17 is not known"));
  EXPECT_THAT(with(9), HasSubstr("dtype 9 at byte 17 is not known"));
  EXPECT_THAT(with(255), HasSubstr("dtype 255 at byte 17 is not known"));
}

TEST_F(IndexedDatasetTest, RefusesCountsThatDoNotFitTheFile) {
  const auto forged = [&](int64_t sequences, int64_t documents) {
    Index index = small_index();
    index.forged_sequences = sequences;
    index.forged_documents = documents;
    return error_of(index);
  };
  EXPECT_THAT(forged(4, -1),
              HasSubstr("4 sequences and 3 document entries (bytes 18 and 26) need"));
  EXPECT_THAT(forged(-1, 2), HasSubstr("the file has 94"));
  EXPECT_THAT(forged(-1, 4), HasSubstr("the file has 94"));
  // 12 x S and 8 x D wrap round to the size of the file in 64 bits.
  const int64_t wraps_to_zero = int64_t{1} << 62;
  EXPECT_THAT(forged(3 + wraps_to_zero, -1), HasSubstr("the file has 94"));
  EXPECT_THAT(forged(-1, 3 + (int64_t{1} << 61)), HasSubstr("the file has 94"));
  EXPECT_THAT(forged(std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::max()),
              HasSubstr("the file has 94"));
  write_file(prefix_ + ".idx", small_index().bytes() + "x");
  EXPECT_THAT(user_error([&] { IndexedDataset data(prefix_); }), HasSubstr("the file has 95"));
}

// A forged index must not make the process allocate: this one names 2^56 sequences.
TEST_F(IndexedDatasetTest, AllocatesNothingForForgedCounts) {
  struct rusage before {
  }, after{};
  getrusage(RUSAGE_SELF, &before);
  Index index = small_index();
  index.forged_sequences = int64_t{1} << 56;
  error_of(index);
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 16 * 1024);  // KiB
}

TEST_F(IndexedDatasetTest, RefusesATruncatedPair) {
  const std::string bytes = small_index().bytes();
  for (size_t size = 1; size < bytes.size(); ++size) {
    write_file(prefix_ + ".idx", bytes.substr(0, size));
    write_file(prefix_ + ".bin", bytes_of(kSmallTokens));
    EXPECT_THAT(user_error([&] { IndexedDataset data(prefix_); }), HasSubstr(".idx")) << size;
  }
  EXPECT_THAT(error_of(small_index(), bytes_of(kSmallTokens).substr(0, 8)),
              AllOf(HasSubstr("sequence 2 of 3 tokens at byte 4 ends past"), HasSubstr("8 bytes")));
}

TEST_F(IndexedDatasetTest, RefusesATokenFileThatIsNotItsOwn) {
  EXPECT_THAT(error_of(small_index(), bytes_of(kSmallTokens) + "xx"),
              HasSubstr("its sequences have 5 tokens"));
}

TEST_F(IndexedDatasetTest, RefusesWrongSequences) {
  const auto with = [&](std::vector<int32_t> lengths, std::vector<int64_t> offsets) {
    Index index = small_index();
    index.lengths = std::move(lengths);
    index.offsets = std::move(offsets);
    return error_of(index);
  };
  EXPECT_THAT(with({2, -1, 3}, {0, 4, 4}), HasSubstr("sequence 1 has length -1"));
  EXPECT_THAT(with({2, 0, 3}, {0, 4, 5}), HasSubstr("sequence 2 starts at byte 5 of .bin"));
  EXPECT_THAT(with({2, 0, 3}, {0, -4, 4}), HasSubstr("sequence 1 starts at byte -4 of .bin"));
  EXPECT_THAT(with({2, 0, 4}, {0, 4, 4}), HasSubstr("sequence 2 of 4 tokens at byte 4 ends past"));
  EXPECT_THAT(with({2, 0, 2147483647}, {0, 4, 4}), HasSubstr("ends past"));
  EXPECT_THAT(with({2, 0, 3}, {0, 4, 9223372036854775806}), HasSubstr("ends past"));
  EXPECT_THAT(with({2, 0, 2}, {0, 4, 2}), HasSubstr("sequences 0 and 2 overlap"));
  EXPECT_THAT(with({5, 0, 5}, {0, 4, 0}), HasSubstr("its sequences overlap"));
}

TEST_F(IndexedDatasetTest, RefusesWrongDocuments) {
  const auto with = [&](std::vector<int64_t> documents) {
    Index index = small_index();
    index.documents = std::move(documents);
    return error_of(index);
  };
  EXPECT_THAT(with({}), HasSubstr("the document array is empty"));
  EXPECT_THAT(with({1, 3}), HasSubstr("the document array starts with 1; it must start with 0"));
  EXPECT_THAT(with({0, 2, 1}), HasSubstr("entry 2 is 1 after 2"));
  EXPECT_THAT(with({0, 4}), HasSubstr("entry 1 is 4 after 0"));
}

// Small files count whole, wherever they lie.
TEST_F(IndexedDatasetTest, FingerprintNamesTheData) {
  const auto of = [&](const Index& index, const std::vector<uint16_t>& tokens,
                      const std::string& name) {
    write_file((folder_ / name).string() + ".idx", index.bytes());
    write_file((folder_ / name).string() + ".bin", bytes_of(tokens));
    return IndexedDataset(folder_ / name).fingerprint();
  };
  const std::string original = of(small_index(), kSmallTokens, "a");
  EXPECT_THAT(original, ::testing::MatchesRegex("u16 5 tokens 3 sequences xxh3 [0-9a-f]{16}"));
  EXPECT_EQ(of(small_index(), kSmallTokens, "moved"), original);
  for (size_t i = 0; i < kSmallTokens.size(); ++i) {
    std::vector<uint16_t> tokens = kSmallTokens;
    tokens[i] ^= 1;
    EXPECT_NE(of(small_index(), tokens, "b"), original) << i;
  }
  Index cut = small_index();
  cut.lengths = {2, 1, 2};
  cut.offsets = {0, 4, 6};
  EXPECT_NE(of(cut, kSmallTokens, "b"), original);
  cut = small_index();
  cut.documents = {0, 1, 3};
  EXPECT_NE(of(cut, kSmallTokens, "b"), original);
}

// A sparse file of 40 MB: its ends and the blocks between them count, and its length.
TEST_F(IndexedDatasetTest, FingerprintOfALargeFileSamplesIt) {
  constexpr int64_t kTokens = 40'000'000, kBlock = int64_t{1} << 20;
  const auto of = [&](int64_t tokens, int64_t changed) {
    Index index;
    index.lengths = {static_cast<int32_t>(tokens)};
    index.offsets = {0};
    index.documents = {0, 1};
    write_file(prefix_ + ".idx", index.bytes());
    write_file(prefix_ + ".bin", "");
    std::filesystem::resize_file(prefix_ + ".bin", static_cast<uint64_t>(tokens));
    if (changed >= 0) {
      std::fstream file(prefix_ + ".bin", std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(changed);
      file.put('x');
    }
    return IndexedDataset(prefix_).fingerprint();
  };
  const std::string zeros = of(kTokens, -1);
  EXPECT_THAT(zeros, HasSubstr("u8 40000000 tokens 1 sequences"));
  EXPECT_NE(of(kTokens - 1, -1), zeros);
  const int64_t third = (kTokens - kBlock) / 15 * 5;  // the sixth block
  for (const int64_t at :
       {int64_t{0}, kBlock - 1, kTokens - kBlock, kTokens - 1, third + 5, third + kBlock - 1})
    EXPECT_NE(of(kTokens, at), zeros) << at;
  EXPECT_EQ(of(kTokens, 2 * kBlock), zeros);  // in a gap: the price of being cheap
}

}  // namespace
}  // namespace tessera
