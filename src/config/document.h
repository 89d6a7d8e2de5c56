#pragma once

#include <string>

namespace tessera {

// Every key with its type, default and meaning, from the declaration in fields.cpp: as the Markdown
// section that docs/configuration.md holds between its two markers, or as plain text.
std::string keys_markdown();
std::string keys_text();

}  // namespace tessera
