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

// Opens the data sets of the configuration. `check`: also look for bad values in the first samples
// now, rather than when they are needed (one rank does so). UserError if they cannot be read, do
// not fit the model or have less than one global batch.
Data open_data(const Config& config, bool check);

// What ranks must have read alike (rank_agreement.h): a Sight for each data set. Of pairs, sources
// and targets are two.
std::vector<Sight> sights_of(const Config& config, const Data& data);
// Looks at the data sets of the configuration as a start would, without a mesh: each file by
// itself, so that all that is missing is reported at once, then what they hold.
void check_data_files(const Config& config, RuleReport& report);

}  // namespace tessera
