#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/device/device.h"

namespace tessera {

// What a data set gives and a model takes: B samples with S targets each. A tensor that the kind of
// data does not have is undefined. The executor passes it on to the stages and looks at none of it.
struct MicroBatch {
  at::Tensor tokens = {};   // int64 [B, S], the (decoder's) input; undefined for images
  at::Tensor targets = {};  // int64 [B, S]; of images their class, S = 1
  // fp32 or fp64 [B, S]: what each target's loss counts, 1/(counted targets of the global batch)
  // or 0 (padding, rows that only fill up), times the loss scale. The last stage's loss is linear
  // in them.
  at::Tensor weights = {};
  // int64 [B]: the place of each row in the run's sequence of samples (update * global batch +
  // row), which names its dropout masks on every mesh and in every split. Undefined: no dropout.
  at::Tensor rows = {};
  at::Tensor images = {};          // fp32 or fp64 [B, C, H, W], normalised; else undefined
  at::Tensor source = {};          // int64 [B, S'], the encoder's input; else undefined
  at::Tensor source_lengths = {};  // int64 [B]: tokens of each source row, the rest is padding

  // Calls f(tensor), which may replace it, for each tensor of the batch, defined or not.
  template <typename F>
  void for_each_tensor(F f) {
    for (at::Tensor* tensor :
         {&tokens, &targets, &weights, &rows, &images, &source, &source_lengths})
      f(*tensor);
  }

  // The batch on a device (Device::upload): copies that the host does not wait for; on the host the
  // same tensors.
  MicroBatch to(const Device& device) const {
    MicroBatch moved = *this;
    moved.for_each_tensor([&](at::Tensor& tensor) { tensor = device.upload(tensor); });
    return moved;
  }
};

}  // namespace tessera
