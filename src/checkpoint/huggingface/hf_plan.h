#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/huggingface/hf_tensors.h"
#include "checkpoint/huggingface/hugging_face.h"

namespace tessera {

// Where the data of one of our tensors lies: rows of a file's tensor, or columns of a matrix that
// is stored transposed.
struct HfPart {
  TensorInfo info;
  HuggingFaceFolder::Tensor stored;
  bool transposed = false;
  int64_t begin = 0;  // the first row (transposed: column) of the stored tensor
};

// How a folder's files give the tensors of a model: from headers alone, no data.
struct HfPlan {
  HuggingFaceFolder folder;        // its notes name what the files hold besides
  std::vector<HfPart> parts = {};  // one for each of our tensors, in the order of the files
  // A tied head that the files hold beside its embedding: whoever reads them checks that the two
  // are equal.
  struct Twins {
    HuggingFaceFolder::Tensor head;
    HuggingFaceFolder::Tensor embedding;
  };
  std::optional<Twins> tied = std::nullopt;
};

// UserError if a parameter of the model is missing, has another shape or a type that is no weight's
// (F32, F64, BF16 and F16 are). Tensors that are none of the model's are named in a note and left
// out; where the model does not say which it has (HfModel::parameters), it has those of the files.
// Other errors as open_hugging_face() and take_names() (hf_names.h).
HfPlan plan_hugging_face(const std::filesystem::path& dir, nlohmann::json config,
                         const HfModel& model);

}  // namespace tessera
