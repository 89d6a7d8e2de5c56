#pragma once

#include <string>
#include <utility>

#include "config/keys/key_places.h"
#include "config/yaml/mistakes.h"
#include "config/yaml/yaml_tree.h"

namespace tessera {

// A node as messages show it.
std::string shown(const YamlNode& node);

// Thrown to end the reading of one value: what is wrong with it, and where it stands.
struct Refusal {
  TextPlace place;
  std::string message;
};

// Throws the Refusal "PATH: what the node holds; must be RULE", with `why` behind it.
[[noreturn]] void refuse(const YamlNode& node, const std::string& path, const std::string& rule,
                         const std::string& why = "");

// Takes what the reading of a configuration finds: where keys stand, and mistakes.
struct Findings {
  KeyPlaces& places;
  Mistakes& mistakes;

  // Adds a mistake of the key `path`, which from now on counts as one that could not be read.
  void refuse(const std::string& path, const TextPlace& place, std::string message) {
    mistakes.add(place, std::move(message));
    places.refuse(path);
  }

  // Notes that `path` stands at `node`, and runs `read` unless a mistake was found in the node
  // already. A Refusal that `read` throws becomes a mistake of `path`.
  template <typename Read>
  void read(const std::string& path, const YamlNode& node, Read read) {
    places.give(path, node.where);
    if (node.refused) {
      places.refuse(path);
      return;
    }
    try {
      read();
    } catch (const Refusal& refusal) {
      refuse(path, refusal.place, refusal.message);
    }
  }
};

}  // namespace tessera
