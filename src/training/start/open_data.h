#pragma once

#include <memory>
#include <vector>

#include "base/fields/rule_report.h"
#include "config/config.h"
#include "data/sample_source.h"
#include "training/start/rank_agreement.h"

namespace tessera {

struct Data {
  std::unique_ptr<const SampleSource> train;
  std::unique_ptr<const SampleSource> valid;  // null: no validation
};

// The data sets of the configuration. `check`: look at what they hold already now (one rank does).
// UserError if they cannot be read, do not fit the model or have less than one global batch.
Data open_data(const Config& config, bool check);

// What tells the data sets of one rank from another's: a row for each file or pair of files.
std::vector<Sight> sights_of(const Config& config, const Data& data);
// Looks at the data sets of the configuration as a start would, without a mesh: each file by
// itself, so that all that is missing is reported at once, then what they hold.
void check_data_files(const Config& config, RuleReport& report);

}  // namespace tessera
