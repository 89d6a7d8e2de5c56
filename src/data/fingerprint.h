#pragma once

#include <string>

#include "data/data_file.h"

namespace tessera {

// XXH3 of all of the index and of a sample of the tokens that is bounded whatever their number: 16
// blocks of 1 MiB at fixed fractions of the file, the first at its start and the last at its end
// (all of it if it is no larger). Tells data sets apart; does not find every edit.
std::string dataset_digest(const DataFile& idx, const DataFile& bin);

// XXH3 of such a sample of one file.
std::string file_digest(const DataFile& file);

}  // namespace tessera
