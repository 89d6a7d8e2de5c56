#pragma once

#include <string>

#include "base/fields/field.h"
#include "config/keys/findings.h"

namespace tessera {

// Reads a node into the value of the field at `path`, by the kind of the value. Throws a Refusal
// that names value, rule and, where it can be guessed, what was meant; mistakes inside lists and
// maps go to `findings`, so that the rest of them is read too.
void decode_value(const YamlNode& node, const std::string& path, Findings& findings,
                  FieldValue& value);

}  // namespace tessera
