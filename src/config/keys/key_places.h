#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/fields/rule_report.h"
#include "config/yaml/mistakes.h"

namespace tessera {

// Where each key of a configuration was given, and which could not be read.
class KeyPlaces {
 public:
  // `path`: a key, a section, or an item of a list ("data.train[0]").
  void give(const std::string& path, const TextPlace& place) { places_[path] = place; }
  void refuse(const std::string& path) { refused_.insert(path); }

  // The place of the key itself; null if it was not given.
  const TextPlace* find(const std::string& path) const;
  // The place of the key, else that of the list or section that it lies in; an empty TextPlace if
  // none of them was given. Keys of a model from a file have the place of model.config.
  TextPlace around(const std::string& path) const;
  // Whether the key, something in it or something that it lies in could not be read.
  bool refused(const std::string& path) const;

 private:
  std::map<std::string, TextPlace> places_;
  std::set<std::string> refused_;
};

// Turns broken rules into mistakes with the place of the key at fault: of the keys that the rule is
// about, the first that was given by --set (since --set comes after the file), else the first that
// was given at all.
class PlacedReport : public RuleReport {
 public:
  PlacedReport(const KeyPlaces& places, Mistakes& mistakes)
      : places_(places), mistakes_(mistakes) {}

 private:
  void add(const std::vector<std::string>& keys, std::string message) override;
  TextPlace place_of(const std::vector<std::string>& keys) const;

  const KeyPlaces& places_;
  Mistakes& mistakes_;
};

}  // namespace tessera
