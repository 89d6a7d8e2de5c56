#pragma once

#include <string>

#include "config/yaml/mistakes.h"
#include "config/yaml/yaml_tree.h"

namespace tessera {

// Looks at a text before yaml-cpp does, for what YAML allows and a configuration can only have by
// mistake: texts of several lines (a quote that is not closed takes in all up to the next quote,
// wherever that is), block texts, and characters that cannot be seen. Adds what it finds, each at
// its place, and returns the text as it was most likely meant, so that the rest can be read. Throws
// all mistakes where what follows cannot be told.
//
// Also drops a byte-order mark at the front and turns CRLF into LF.
std::string read_lines(const std::string& text, const YamlWhere& where, Mistakes& mistakes);

}  // namespace tessera
