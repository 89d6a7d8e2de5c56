#pragma once

#include <filesystem>

#include "config/config.h"
#include "training/output/console.h"
#include "training/start/run_start.h"

namespace tessera {

// Makes RUN/hf_files what an export of this run carries beside the weights
// (checkpoint/huggingface/hf_files.h). A run that begins at step 0 gets exactly the files of the
// checkpoint that it starts from, whatever an earlier start left there. A run that resumes takes
// the files that belong to its checkpoint; if there are none, it keeps what it has.
//
// A model of images also gets the preprocessor_config.json that makes pixels what training made of
// them: resized to the model's size, divided by 255, normalised with data.mean and data.std. If a
// run begins at step 0 with a checkpoint whose file says another mean or std, a warning names both.
// For rank 0 alone.
void write_run_hf_files(const Config& config, const RunStart& start, Console& console);

}  // namespace tessera
