#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/huggingface/hf_tensors.h"
#include "checkpoint/huggingface/hugging_face.h"

namespace tessera {

// A parameter's own name under those that training code wraps modules in: torch.compile
// (`_orig_mod.`), FSDP (`_fsdp_wrapped_module.`), recomputation (`_checkpoint_wrapped_module.`),
// wherever they stand, and `module.` of DistributedDataParallel in front.
std::string without_wrappers(std::string_view name);

// Whether a stored tensor follows from the configuration and is not read.
bool is_ignored(const HfTensors& names, std::string_view stored);

// Gives the folder's tensors the names that the model's files have: without wrappers, and with the
// prefix of a model that was saved without its head. UserError for two tensors of one name, and for
// a model without its head where that is not the embedding.
void take_names(HuggingFaceFolder& folder, const HfModel& model);

}  // namespace tessera
