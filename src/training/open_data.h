#pragma once

#include <memory>

#include "config/config.h"
#include "data/sample_source.h"

namespace tessera {

struct Data {
  std::unique_ptr<const SampleSource> train;
  std::unique_ptr<const SampleSource> valid;  // null: no validation
};

// The data sets of the configuration. `check`: look at what they hold already now (one rank does).
// UserError if they cannot be read, do not fit the model or have less than one global batch.
Data open_data(const Config& config, bool check);

}  // namespace tessera
