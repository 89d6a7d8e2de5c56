#pragma once

#include <string>
#include <utility>

#include "config/keys/key_places.h"
#include "config/yaml/mistakes.h"
#include "config/yaml/yaml_tree.h"

namespace tessera {

// A node as messages show it.
std::string shown(const YamlNode& node);

// What ends the reading of one value.
struct Refusal {
  Place place;
  std::string message;
};

// Throws the Refusal "PATH: what the node holds; must be RULE", with `why` behind it.
[[noreturn]] void refuse(const YamlNode& node, const std::string& path, const std::string& rule,
                         const std::string& why = "");

// Where the reading of a configuration puts what it finds.
struct Findings {
  KeyPlaces& places;
  Mistakes& mistakes;

  void refuse(const std::string& path, const Place& place, std::string message) {
    mistakes.add(place, std::move(message));
    places.refuse(path);
  }

  // Runs `read`; what it refuses is a mistake of `path`.
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
