#include "data/pack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "data/data_files.h"
#include "data/indexed_dataset.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::bytes_of;
using ::testing::HasSubstr;
using testing::Index;
using testing::read_file;
using testing::user_error;
using testing::write_file;

class PackTest : public ::testing::Test {
 protected:
  fs::path input(const std::string& name, const std::string& text) {
    write_file(folder_ / name, text);
    return folder_ / name;
  }
  std::vector<std::string> files(const std::string& name) const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path() / name)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  TemporaryFolder folder_;
  std::string out_ = folder_ / "out/text";
};

TEST_F(PackTest, WritesMegatronsLayoutByteForByte) {
  const PackResult result = pack_bytes({input("a", "one\ntwo\n"), input("b", "three")}, out_, {});
  EXPECT_EQ(result.documents, 2);
  EXPECT_EQ(result.tokens, 13);
  EXPECT_EQ(read_file(out_ + ".bin"), "one\ntwo\nthree");
  Index index;
  index.lengths = {8, 5};
  index.offsets = {0, 8};
  index.documents = {0, 1, 2};
  EXPECT_EQ(read_file(out_ + ".idx"), index.bytes());
  EXPECT_EQ(files("out"), (std::vector<std::string>{"text.bin", "text.idx"}));
}

TEST_F(PackTest, ADocumentPerLineKeepsNewlines) {
  const auto inputs = {input("a", "one\n\ntwo"), input("b", "\xff\n")};
  const PackResult result = pack_bytes(inputs, out_, {.document_per_line = true});
  EXPECT_EQ(result.documents, 4);
  EXPECT_EQ(read_file(out_ + ".bin"), "one\n\ntwo\xff\n");
  Index index;
  index.lengths = {4, 1, 3, 2};
  index.offsets = {0, 4, 5, 8};
  index.documents = {0, 1, 2, 3, 4};
  EXPECT_EQ(read_file(out_ + ".idx"), index.bytes());
}

// Larger than the read buffer, with lines that cross its border.
TEST_F(PackTest, ReadsBackWhatWasPacked) {
  std::string text;
  for (int64_t i = 0; i < 300000; ++i) text += "line " + std::to_string(i * 7919 % 100003) + "\n";
  const PackResult result = pack_bytes({input("a", text)}, out_, {.document_per_line = true});
  EXPECT_EQ(result.documents, 300000);
  const IndexedDataset data(out_);
  EXPECT_EQ(data.num_documents(), 300000);
  ASSERT_EQ(data.num_tokens(), static_cast<int64_t>(text.size()));
  std::vector<int64_t> tokens(text.size());
  data.read(0, tokens);
  EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), text.begin(),
                         [](int64_t token, char c) { return token == static_cast<uint8_t>(c); }));
}

TEST_F(PackTest, HoldsOutWholeLinesOfOneDocument) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "0123456789abcdefgh\n";  // 19 bytes a line
  const PackResult result = pack_bytes({input("a", text)}, out_, {.valid_fraction = 0.052});
  EXPECT_EQ(result.documents, 1);
  EXPECT_EQ(result.tokens, 95 * 19);
  EXPECT_EQ(result.valid_documents, 1);
  EXPECT_EQ(result.valid_tokens, 5 * 19);
  EXPECT_EQ(read_file(out_ + ".bin") + read_file(out_ + "-valid.bin"), text);
  EXPECT_EQ(IndexedDataset(out_ + "-valid").num_tokens(), 5 * 19);
  EXPECT_EQ(files("out").size(), 4U);
}

TEST_F(PackTest, HoldsOutWholeDocuments) {
  const std::vector<fs::path> inputs = {input("a", "aaaa\naaaa\n"), input("b", "bb\nbb\nbb\n"),
                                        input("c", "c\nc\n")};
  PackResult result = pack_bytes(inputs, out_, {.valid_fraction = 0.1});
  EXPECT_EQ(result.documents, 2);
  EXPECT_EQ(read_file(out_ + "-valid.bin"), "c\nc\n");
  result = pack_bytes(inputs, out_, {.valid_fraction = 0.6});
  EXPECT_EQ(result.documents, 1);
  EXPECT_EQ(result.valid_documents, 2);
  EXPECT_EQ(read_file(out_ + "-valid.bin"), "bb\nbb\nbb\nc\nc\n");
  result = pack_bytes(inputs, out_, {.document_per_line = true, .valid_fraction = 0.05});
  EXPECT_EQ(result.documents, 6);
  EXPECT_EQ(read_file(out_ + "-valid.bin"), "c\n");
}

TEST_F(PackTest, BothSidesKeepSomething) {
  const fs::path two = input("two", "long first line\nx\n");
  for (double fraction : {1e-9, 0.999999}) {
    const PackResult result = pack_bytes({two}, out_, {.valid_fraction = fraction});
    EXPECT_EQ(result.tokens, 16);
    EXPECT_EQ(result.valid_tokens, 2);
  }
  EXPECT_THAT(user_error([&] { pack_bytes({input("one", "x\n")}, out_, {.valid_fraction = 0.5}); }),
              HasSubstr("2 bytes in one document of one line cannot be cut"));
}

TEST_F(PackTest, RefusesWrongFractions) {
  const fs::path a = input("a", "x\ny\n");
  for (double fraction : {-0.1, 1.0, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(user_error([&] { pack_bytes({a}, out_, {.valid_fraction = fraction}); }),
                HasSubstr("it must be at least 0 and below 1"));
  }
}

TEST_F(PackTest, RefusesMissingAndEmptyInputsBeforeWriting) {
  const fs::path good = input("good", "text\n");
  const auto message = [&](const std::vector<fs::path>& inputs) {
    return user_error([&] { pack_bytes(inputs, out_, {}); });
  };
  EXPECT_THAT(message({}), HasSubstr("no input files"));
  EXPECT_THAT(message({good, "no/such.txt"}), HasSubstr("input no/such.txt does not exist"));
  EXPECT_THAT(message({good, input("none", "")}), HasSubstr("none is empty: 0 bytes"));
  EXPECT_THAT(message({folder_.path()}), HasSubstr("is not a regular file"));
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

// An old pair stays as it was when packing fails, and nothing half written is left.
TEST_F(PackTest, LeavesOldFilesWhenItFails) {
  pack_bytes({input("a", "old text\n")}, out_, {});
  fs::create_directory(out_ + "-valid.bin");  // the rename of the held-out part fails
  write_file(out_ + "-valid.bin/file", "x");
  EXPECT_THROW(pack_bytes({input("b", "new\ntext\n")}, out_, {.valid_fraction = 0.5}),
               std::exception);
  EXPECT_EQ(read_file(out_ + ".bin"), "old text\n");
  EXPECT_EQ(files("out"), (std::vector<std::string>{"text-valid.bin", "text.bin", "text.idx"}));
}

TEST_F(PackTest, RefusesAPrefixThatNamesNoFileOrAnInput) {
  const fs::path text = input("a", "text\n");
  for (const std::string& prefix : {std::string(), (folder_ / "folder/").string()})
    EXPECT_THAT(user_error([&] { pack_bytes({text}, prefix, {}); }), HasSubstr("names no file"));
  pack_bytes({text}, out_, {});
  EXPECT_THAT(user_error([&] { pack_bytes({out_ + ".idx"}, out_, {}); }),
              HasSubstr("would be overwritten"));
  EXPECT_EQ(read_file(out_ + ".bin"), "text\n");
}

TEST_F(PackTest, ReplacesAnOldPair) {
  pack_bytes({input("a", "old text\n")}, out_, {});
  pack_bytes({input("b", "new\n")}, out_, {});
  EXPECT_EQ(read_file(out_ + ".bin"), "new\n");
  EXPECT_EQ(IndexedDataset(out_).num_tokens(), 4);
}

}  // namespace
}  // namespace tessera
