#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

// How a key of the configuration is declared: its name, the member that it fills, and the rules of
// its value. The declarations themselves are in config/keys/*_fields.cpp and, for its keys, in each
// model.

namespace tessera {

// Each value kind below refers to a member that outlives it.

struct IntegerValue {
  std::function<std::optional<int64_t>()> get;  // nullopt: what `word` stands for
  std::function<void(std::optional<int64_t>)> set;
  int64_t min;
  int64_t max;
  std::string word;  // such as auto or none; empty: an integer is the only form
};

struct RealRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;  // the minimum itself is not allowed
  bool below_max = false;
};

struct RealValue {
  double* value;
  RealRange range;
};

struct RealPairValue {
  double* first;
  double* second;
  RealRange range;
};

struct RealListValue {
  std::vector<double>* values;
  RealRange range;
};

struct FlagValue {
  bool* value;
};

// true, false or a count of at least 1, kept in one number.
struct FlagOrCountValue {
  int64_t* value;
  int64_t when_true;
  int64_t when_false;
};

// Pairs of a word that other programs use and the word that this program has for it; used only to
// ask "did you mean".
using Synonyms = std::vector<std::pair<std::string, std::string>>;

// One of a few words. get() is the index in `words`, -1 for a value that is none of them.
struct ChoiceValue {
  std::vector<std::string> words;
  std::function<int()> get;
  std::function<void(int)> set;
  Synonyms synonyms = {};  // in small letters
};

struct TextValue {
  std::string* value;
  std::string word;  // stands for the empty text, such as none; empty: text is required
  std::string what;  // what the text is, for messages and documentation
};

// A path: `~` and $NAME in it stand for what they do in a shell (base/files/path_text.h). Every key
// whose text names a file or folder is of this kind.
struct PathValue : TextValue {};

struct TextListValue {
  std::vector<std::string>* value;
};

// A list of paths, each as PathValue says.
struct PathListValue : TextListValue {};

// A real number or one of a few words; the index in `words` stands for a word.
struct RealOrWordValue {
  std::vector<std::string> words;
  RealRange range;
  std::function<std::variant<size_t, double>()> get;
  std::function<void(std::variant<size_t, double>)> set;
};

struct Field;

// A list of maps, each with the same fields. fields(i) refers to item i.
struct MapListValue {
  std::vector<std::string> keys;
  std::function<size_t()> size;
  std::function<void(size_t)> resize;  // new items have the defaults
  std::function<std::vector<Field>(size_t)> fields;
};

// One map of certain fields, or a word for none.
struct OptionalMapValue {
  std::string word;
  std::vector<std::string> keys;
  std::function<bool()> given;
  std::function<void(bool)> give;              // a map with the defaults, or none
  std::function<std::vector<Field>()> fields;  // of the map that is given
};

using FieldValue = std::variant<IntegerValue, RealValue, RealPairValue, RealListValue, FlagValue,
                                FlagOrCountValue, ChoiceValue, TextValue, PathValue, TextListValue,
                                PathListValue, RealOrWordValue, MapListValue, OptionalMapValue>;

// Whether a resumed run may change the key. kMathematics: the key decides what is computed, so a
// change is refused unless checkpoint.allow_change names the key (config/rules/resume.h). kFree:
// yes.
enum class OnResume { kMathematics, kFree };

struct Field {
  std::string name;
  FieldValue value;
  bool required;
  OnResume on_resume;
  std::string doc;                   // one line
  std::vector<std::string> aliases;  // other trainers' names: only for "did you mean"
  std::string follows = {};          // the key that the default is taken from; empty: from none
};

// What a value must be, such as "an integer from 1 to 8".
std::string rule_text(const FieldValue& value);

// Whether a number obeys the range.
bool in_range(const RealRange& range, double value);

// The text of the current value as it is written in YAML.
std::string value_text(const FieldValue& value);

// A text as a YAML scalar: plain where every reader takes it for the same string, else quoted.
std::string yaml_scalar(const std::string& text);

// Shortest decimal text that reads back to the same double, always with a point.
std::string real_text(double value);

}  // namespace tessera
