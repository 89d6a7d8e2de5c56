#pragma once

#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fields/field.h"

// How declarations make the value of a field from a member of the configuration.
namespace tessera {

inline constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();
inline constexpr int64_t kMaxCount = 1'000'000'000'000;
inline constexpr int64_t kMaxTimeout = 30 * 24 * 3600;
inline constexpr OnResume kMathematics = OnResume::kMathematics;
inline constexpr OnResume kFree = OnResume::kFree;

template <typename T>
IntegerValue integer(T& member, int64_t min, int64_t max) {
  return {[&member] { return std::optional(static_cast<int64_t>(member)); },
          [&member](std::optional<int64_t> value) { member = static_cast<T>(*value); }, min, max,
          ""};
}

// An integer whose 0 is written as `word`.
template <typename T>
IntegerValue integer_or(const char* word, T& member, int64_t min, int64_t max) {
  return {[&member] { return member == 0 ? std::nullopt : std::optional<int64_t>(member); },
          [&member](std::optional<int64_t> value) { member = static_cast<T>(value.value_or(0)); },
          min, max, word};
}

inline IntegerValue integer_or(const char* word, std::optional<int64_t>& member, int64_t min,
                               int64_t max) {
  return {[&member] { return member; }, [&member](std::optional<int64_t> value) { member = value; },
          min, max, word};
}

inline RealRange above(double min) {
  return {.min = min, .above_min = true};
}
inline constexpr RealRange kRate{.min = 0, .max = 1, .below_max = true};
inline RealRange at_least(double min) {
  return {.min = min};
}

// An enumeration whose values are 0, 1, ... in the order of `words`.
template <typename E>
ChoiceValue choice(E& member, std::vector<std::string> words, Synonyms synonyms = {}) {
  return {std::move(words), [&member] { return static_cast<int>(member); },
          [&member](int index) { member = static_cast<E>(index); }, std::move(synonyms)};
}

inline ChoiceValue choice(std::string& member, std::vector<std::string> words,
                          Synonyms synonyms = {}) {
  const auto get = [&member, words] {
    for (size_t i = 0; i < words.size(); ++i) {
      if (words[i] == member) return static_cast<int>(i);
    }
    return -1;
  };
  return {words, get, [&member, words](int index) { member = words[static_cast<size_t>(index)]; },
          std::move(synonyms)};
}

// Other words for element types.
inline const Synonyms& dtype_synonyms() {
  static const Synonyms kWords = {{"float32", "fp32"},      {"float", "fp32"},
                                  {"f32", "fp32"},          {"32", "fp32"},
                                  {"single", "fp32"},       {"torch.float32", "fp32"},
                                  {"bfloat16", "bf16"},     {"torch.bfloat16", "bf16"},
                                  {"bf16_mixed", "bf16"},   {"float16", "fp16"},
                                  {"half", "fp16"},         {"f16", "fp16"},
                                  {"16", "fp16"},           {"torch.float16", "fp16"},
                                  {"fp16_mixed", "fp16"},   {"16_mixed", "fp16"},
                                  {"float64", "fp64"},      {"double", "fp64"},
                                  {"f64", "fp64"},          {"64", "fp64"},
                                  {"torch.float64", "fp64"}};
  return kWords;
}

inline PathValue path(std::string& member, const char* what) {
  return {{&member, "", what}};
}

// A path whose empty text is written as `word`.
inline PathValue path_or(const char* word, std::string& member, const char* what) {
  return {{&member, word, what}};
}

inline PathListValue paths(std::vector<std::string>& members) {
  return {{&members}};
}

template <typename Item>
std::vector<std::string> names_of(std::vector<Field> (*fields)(Item&)) {
  Item any;
  std::vector<std::string> names;
  for (const Field& field : fields(any)) names.push_back(field.name);
  return names;
}

template <typename Item>
MapListValue map_list(std::vector<Item>& items, std::vector<Field> (*fields)(Item&)) {
  return {names_of(fields), [&items] { return items.size(); },
          [&items](size_t size) { items.assign(size, Item()); },
          [&items, fields](size_t i) { return fields(items[i]); }};
}

// A map that may be left out, which is written as `word`.
template <typename Item>
OptionalMapValue map_or(const char* word, std::optional<Item>& item,
                        std::vector<Field> (*fields)(Item&)) {
  return {word, names_of(fields), [&item] { return item.has_value(); },
          [&item](bool given) { item = given ? std::optional(Item()) : std::nullopt; },
          [&item, fields] { return fields(item.value()); }};
}

}  // namespace tessera
