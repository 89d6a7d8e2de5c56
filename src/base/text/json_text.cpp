#include "base/text/json_text.h"

#include <set>
#include <vector>

#include "base/error.h"

namespace tessera {

using nlohmann::json;

std::optional<std::string> hidden_bytes(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) return "begins with a byte-order mark";
  const size_t nul = text.find('\0');
  if (nul != std::string_view::npos) return fmt::format("holds NUL at byte {}", nul);
  return std::nullopt;
}

json parse_json(std::string_view text, const std::string& what) {
  constexpr int kMaxDepth = 64;
  if (const auto fault = hidden_bytes(text))
    fail_damaged("json", "{}: not valid JSON: it {}; save it as plain UTF-8", what, *fault);
  std::vector<std::set<std::string>> keys;  // of the objects that are open now
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kMaxDepth)
      fail_damaged("json", "{}: nested deeper than {} levels", what, kMaxDepth);
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key &&
        !keys.back().insert(parsed.get_ref<const std::string&>()).second)
      fail_damaged("json", "{}: key '{}' is given twice", what,
                   parsed.get_ref<const std::string&>());
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), watch);
  } catch (const json::exception& error) {
    fail_damaged("json", "{}: not valid JSON: {}", what, error.what());
  }
}

}  // namespace tessera
