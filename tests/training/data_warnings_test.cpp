#include "training/start/data_warnings.h"

#include <gmock/gmock.h>

#include "checkpoint/huggingface/hf_files.h"
#include "data/data_files.h"
#include "training/tiny_run.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using testing::bytes_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::write_file;

std::vector<std::string> warnings(const Config& config, const RunStart& start = {}) {
  return data_warnings(config, open_data(config, true), start);
}

// A step folder that was imported with these files.
RunStart imported(const TemporaryFolder& folder, const std::string& file) {
  std::filesystem::create_directories(folder / "step" / kHfFilesFolder);
  write_file(folder / "step" / kHfFilesFolder / file, "{}");
  RunStart start;
  start.folder = folder / "step";
  start.hf_files = *start.folder / kHfFilesFolder;
  start.weights_only = true;
  return start;
}

TEST(DataWarnings, BytesBesideATokenizer) {
  const TemporaryFolder folder;
  const Config config = tiny_config(folder, "run");
  EXPECT_THAT(warnings(config), ElementsAre());
  EXPECT_THAT(warnings(config, imported(folder, "generation_config.json")), ElementsAre());
  EXPECT_THAT(
      warnings(config, imported(folder, "tokenizer.json")),
      ElementsAre(AllOf(HasSubstr(config.data.train[0] + " holds bytes"),
                        HasSubstr("comes with the tokenizer in " + (folder / "step").string()))));
}

TEST(DataWarnings, BytesForALargeVocabulary) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, "run");
  sizes(config).vocab_size = 32000;
  EXPECT_THAT(warnings(config), ElementsAre(HasSubstr("a vocabulary of 32000: no id above 255")));
}

TEST(DataWarnings, TokensOfATokenizerAreNoBytes) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, "run");
  sizes(config).vocab_size = 32000;
  testing::write_pair(folder / "words", 8, std::vector<uint16_t>(100 * 16 + 1, 5));
  const auto bytes = config.data.train;
  config.data.train = {folder / "words"};
  EXPECT_THAT(warnings(config, imported(folder, "tokenizer.json")), ElementsAre());
  config.eval.every = 1;
  config.data.valid = bytes;
  EXPECT_THAT(warnings(config), ElementsAre(HasSubstr(bytes[0] + " holds bytes")));
}

TEST(DataWarnings, SequencesThatAreNoText) {
  const TemporaryFolder folder;
  Config config = tiny_config(folder, "run");
  testing::Index index;
  index.dtype = 8;
  index.lengths = {1600, 1};
  index.offsets = {0, 3200};
  index.documents = {0, 2};
  index.modes = {0, 1};
  write_file(folder / "mixed.idx", index.bytes());
  write_file(folder / "mixed.bin", bytes_of(std::vector<uint16_t>(1601, 5)));
  config.data.train = {folder / "mixed"};
  EXPECT_THAT(warnings(config), ElementsAre(HasSubstr("mixed: 1 of 2 sequences are no text")));
}

}  // namespace
}  // namespace tessera
