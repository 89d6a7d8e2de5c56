#include <sys/resource.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>

#include "base/text/json_text.h"
#include "checkpoint_testing.h"
#include "safetensors/reader.h"

namespace tessera::testing {
namespace {

class Forged : public Scratch {
 protected:
  std::string error_of(const std::string& content) {
    const fs::path path = dir_ / "forged.safetensors";
    spit(path, content);
    return user_error([&] { read_safetensors_header(File::open(path)); });
  }
};

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape,
                     offsets);
}

TEST_F(Forged, EveryCaseIsAClearError) {
  const std::string valid =
      "{" + entry("a", "F32", "[2]", "[0,8]") + "," + entry("b", "F32", "[2]", "[8,16]") + "}";
  const std::string whole = forge(valid, "0123456789abcdef");
  const std::string data16(16, 'x');
  struct Case {
    const char* what;
    std::string content;
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases = {
      {"length 2^63", forge("{}", "", uint64_t{1} << 63), {"9223372036854775808", "only 2"}},
      {"length 2^64-1", forge("{}", "", ~uint64_t{0}), {"18446744073709551615", "only 2"}},
      {"length of the file", forge("{}", "", 10), {"has 10 bytes", "only 2"}},
      {"length 2^62", forge("{}", "", uint64_t{1} << 62), {"4611686018427387904"}},
      {"empty file", "", {"has 0 bytes", "truncated"}},
      {"four bytes", "abcd", {"has 4 bytes", "truncated"}},
      {"zip", "PK\x03\x04 and so on", {"zip archive", "not safetensors"}},
      {"git-lfs",
       "version https://git-lfs.github.com/spec/v1\noid sha256:12\n",
       {"Git-LFS pointer"}},
      {"pickle", "\x80\x02}q\x01 and so on", {"pickle"}},
      {"a byte short", whole.substr(0, whole.size() - 1), {"'b'", "byte 16", "holds 15"}},
      {"half of it", whole.substr(0, whole.size() - 12), {"'a'", "byte 8", "holds 4"}},
      {"half the header", whole.substr(0, 40), {"truncated"}},
      {"same bytes",
       forge("{" + entry("a", "F32", "[4]", "[0,16]") + "," + entry("b", "F32", "[4]", "[0,16]") +
                 "}",
             data16),
       {"'b'", "inside 'a'"}},
      {"overlap",
       forge(
           "{" + entry("a", "F32", "[2]", "[0,8]") + "," + entry("b", "F32", "[3]", "[4,16]") + "}",
           data16),
       {"'b' begins at byte 4", "ends at 8"}},
      {"hole",
       forge(
           "{" + entry("a", "F32", "[1]", "[0,4]") + "," + entry("b", "F32", "[2]", "[8,16]") + "}",
           data16),
       {"hole", "'b' begins at byte 8", "ends at 4"}},
      {"shape and range disagree",
       forge("{" + entry("t", "F32", "[1000,1000]", "[0,4]") + "}", "1234"),
       {"'t'", "4000000", "give it 4"}},
      {"product overflows",
       forge("{" + entry("t", "F32", "[4294967296,4294967296]", "[0,0]") + "}", ""),
       {"'t'", "2^63"}},
      {"product overflows before a 0",
       forge("{" + entry("t", "F32", "[4294967296,4294967296,0]", "[0,0]") + "}", ""),
       {"'t'", "2^63"}},
      {"product wraps to the range",
       forge("{" + entry("t", "F32", "[4611686018427387905]", "[0,4]") + "}", "1234"),
       {"'t'", "2^63"}},
      {"begin after end",
       forge("{" + entry("t", "F32", "[1]", "[8,4]") + "}", "12345678"),
       {"'t'", "begin at 8 after their end 4"}},
      {"past the data",
       forge("{" + entry("t", "F32", "[100]", "[0,400]") + "}", "12345678"),
       {"'t'", "byte 400", "holds 8"}},
      {"offsets above 2^63",
       forge("{" + entry("t", "F32", "[1]", "[18446744073709551612,18446744073709551615]") + "}",
             "1234"),
       {"'t'", "18446744073709551612"}},
      {"offsets above 2^64",
       forge("{" + entry("t", "F32", "[1]", "[0,99999999999999999999]") + "}", "1234"),
       {"'t'", "the number 99999999999999999999"}},
      {"negative size",
       forge("{" + entry("t", "F32", "[-1]", "[0,4]") + "}", "1234"),
       {"'t'", "-1"}},
      {"fraction", forge("{" + entry("t", "F32", "[1.0]", "[0,4]") + "}", "1234"), {"'t'", "1.0"}},
      {"bytes after the last tensor", whole + "1234", {"4 bytes follow the last tensor"}},
      {"data of no tensor", forge("{}", "12345678"), {"8 bytes follow"}},
      {"empty dtype",
       forge("{" + entry("t", "", "[1]", "[0,4]") + "}", "1234"),
       {"'t'", "dtype ''"}},
      {"C64", forge("{" + entry("t", "C64", "[1]", "[0,8]") + "}", "12345678"), {"'t'", "'C64'"}},
      {"F8_E4M3",
       forge("{" + entry("t", "F8_E4M3", "[4]", "[0,4]") + "}", "1234"),
       {"'t'", "'F8_E4M3'"}},
      {"name twice",
       forge("{" + entry("t", "U8", "[1]", "[0,1]") + "," + entry("t", "U8", "[1]", "[1,2]") + "}",
             "12"),
       {"'t' is given twice"}},
      {"NUL in a name",
       forge("{" + entry("a\\u0000b", "U8", "[1]", "[0,1]") + "}", "1"),
       {"holds NUL"}},
      {"empty name", forge("{" + entry("", "U8", "[1]", "[0,1]") + "}", "1"), {"empty name"}},
      {"field twice",
       forge(R"({"t":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "1"),
       {"'t' gives dtype twice"}},
      {"unknown field",
       forge(R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"stride":[1]}})", "1"),
       {"'t'", "'stride'"}},
      {"missing field",
       forge(R"({"t":{"dtype":"U8","shape":[1]}})", "1"),
       {"'t' has no data_offsets"}},
      {"three offsets",
       forge("{" + entry("t", "U8", "[1]", "[0,1,2]") + "}", "1"),
       {"'t'", "3 numbers"}},
      {"a number for a tensor", forge(R"({"t":3})", ""), {"'t'", "3 does not belong"}},
      {"an array as header", forge("[1,2]", ""), {"the rule is an object"}},
      {"a string as header", forge("\"x\"", ""), {"the rule is an object"}},
      {"nested", forge(R"({"t":{"dtype":{"a":1}}})", ""), {"'t'", "an object does not belong"}},
      {"deep", forge("{\"t\":" + std::string(1000000, '['), ""), {"'t'", "an array"}},
      {"metadata of numbers", forge(R"({"__metadata__":{"a":1}})", ""), {"the number 1"}},
      {"not JSON", forge("{\"t\": nonsense}", ""), {"not valid JSON"}},
      {"two values", forge("{}{}", ""), {"not valid JSON"}},
      {"no header at all", forge("", "12"), {"not valid JSON"}},
      {"null in the metadata",
       forge(R"({"__metadata__":{"a":null}})", ""),
       {"null does not belong"}},
      {"null for a tensor", forge(R"({"t":null})", ""), {"null does not belong at 't'"}},
      {"metadata twice", forge(R"({"__metadata__":null,"__metadata__":{}})", ""), {"given twice"}},
      {"a byte-order mark", forge("\xef\xbb\xbf{}", ""), {"begins with a byte-order mark"}},
      {"padded by NUL", forge("{}" + std::string(6, '\0'), ""), {"NUL at byte 2", "spaces alone"}},
      {"NUL and more", forge("{}" + std::string(1, '\0') + "{}", ""), {"NUL at byte 2"}},
      {"padded by a form feed", forge("{}\f", ""), {"not valid JSON"}},
      {"a comment", forge("{/* */}", ""), {"not valid JSON"}},
      {"a comma too many",
       forge("{" + entry("t", "U8", "[1]", "[0,1]") + ",}", "1"),
       {"not valid JSON"}},
      {"a leading zero", forge("{" + entry("t", "U8", "[01]", "[0,1]") + "}", "1"), {"not valid"}},
      {"minus zero", forge("{" + entry("t", "U8", "[-0]", "[0,0]") + "}", ""), {"'t'"}},
      {"half a surrogate pair",
       forge("{" + entry("a\\ud800b", "U8", "[1]", "[0,1]") + "}", "1"),
       {"not valid JSON"}},
      {"a tensor of nothing inside another",
       forge("{" + entry("a", "U8", "[2]", "[0,2]") + "," + entry("b", "U8", "[0]", "[1,1]") + "}",
             "12"),
       {"'b' begins at byte 1", "inside 'a'"}},
      {"not UTF-8", forge("{\"\xff\xfe\":1}", ""), {"not valid JSON"}},
      {"65 dims",
       forge(
           "{" +
               entry(
                   "t", "U8",
                   "[1" +
                       [] {
                         std::string ones;
                         for (int i = 0; i < 64; ++i) ones += ",1";
                         return ones;
                       }() +
                       "]",
                   "[0,1]") +
               "}",
           "1"),
       {"'t'", "more than 64"}},
  };
  for (const Case& c : cases) {
    const std::string message = error_of(c.content);
    EXPECT_TRUE(contains(message, "forged.safetensors")) << c.what;
    for (const std::string& part : c.parts) EXPECT_TRUE(contains(message, part)) << c.what;
  }
}

// Forged sizes must be refused before memory is asked for: a child with little address space to
// spare gets the same message.
TEST_F(Forged, NothingLargeIsAllocated) {
  const fs::path path = dir_ / "forged.safetensors";
  const std::string huge_tensor =
      forge("{" + entry("t", "F32", "[1000000,1000000]", "[0,4000000000000]") + "}", "1234");
  for (const std::string& content : {forge("{}", "", uint64_t{1} << 63), forge("{}", "", 90000000),
                                     forge("{}", "", ~uint64_t{0}), huge_tensor}) {
    spit(path, content);
    std::fflush(nullptr);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      std::ifstream statm("/proc/self/statm");
      rlim_t pages = 0;
      statm >> pages;
      const rlim_t limit = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{48} << 20);
      const rlimit bound{limit, limit};
      if (setrlimit(RLIMIT_AS, &bound) != 0) _exit(3);
      const std::string message = user_error([&] { read_safetensors_header(File::open(path)); });
      _exit(message.find("forged.safetensors") != std::string::npos ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
}

// The format's limit on headers holds even where the file is as large as it says (a sparse file).
TEST_F(Forged, AHeaderAboveTheLimitIsNotRead) {
  const fs::path path = dir_ / "sparse.safetensors";
  spit(path, forge("{}", "", 100000001));
  fs::resize_file(path, 200000000);
  EXPECT_TRUE(contains(user_error([&] { read_safetensors_header(File::open(path)); }),
                       "100000001 bytes, the format allows 100000000"));
}

TEST_F(Forged, JsonTextHasLimits) {
  EXPECT_TRUE(contains(user_error([] { parse_json(R"({"a":1,"a":2})", "m.json"); }),
                       "m.json: key 'a' is given twice"));
  EXPECT_TRUE(contains(user_error([] { parse_json(std::string(100000, '['), "m.json"); }),
                       "deeper than 64"));
  EXPECT_TRUE(contains(user_error([] { parse_json("{} x", "m.json"); }), "not valid JSON"));
  EXPECT_TRUE(contains(user_error([] { parse_json("\xef\xbb\xbf{}", "m.json"); }),
                       "m.json: not valid JSON: it begins with a byte-order mark"));
  EXPECT_TRUE(contains(user_error([] { parse_json(std::string("{}\0x", 4), "m.json"); }),
                       "m.json: not valid JSON: it holds NUL at byte 2"));
  EXPECT_EQ(parse_json(R"({"a":{"a":1}})", "m.json")["a"]["a"], 1);
}

}  // namespace
}  // namespace tessera::testing
