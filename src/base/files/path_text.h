#pragma once

#include <string>

namespace tessera {

// What a path of a configuration stands for, or what is wrong with it.
struct ExpandedPath {
  std::string path;
  std::string error;  // empty: nothing
};

// `~` alone or before a slash at the front is HOME; $NAME and ${NAME} are variables of the
// environment; $$ is a dollar sign. Anything else that a shell would expand otherwise, and
// variables that are not set or empty, are errors: a folder named `~` or `$SCRATCH` is never what
// was meant.
ExpandedPath expand_path(const std::string& text);

// The inverse of expand_path(): a text that it expands to `path`.
std::string path_as_written(const std::string& path);

}  // namespace tessera
