#include "config/keys/sections.h"

#include <algorithm>
#include <iterator>

#include "base/fields/field_kinds.h"

namespace tessera {
namespace {

std::vector<Field> joined(std::vector<Field> fields, std::vector<Field> more) {
  std::move(more.begin(), more.end(), std::back_inserter(fields));
  return fields;
}

}  // namespace

Section precision_section(PrecisionSection& p) {
  return {
      "precision", "Element types.",
      joined(
          {
              {"params",
               choice(p.params, {"fp32", "bf16", "fp16", "fp64"}, dtype_synonyms()),
               false,
               kMathematics,
               "Parameters and activations; master weights are always at least fp32. fp64: "
               "everything, "
               "for proofs.",
               {"dtype", "param_dtype", "torch_dtype", "mixed_precision", "mixed_precision_param",
                "precision"}},
              {"reduce",
               choice(p.reduce, {"fp32", "bf16", "bf16_wire"}, dtype_synonyms()),
               false,
               kMathematics,
               "Gradient sums over ranks. fp32: in fp32 (fp64 with params fp64); bf16: in bf16, "
               "rounded "
               "once; bf16_wire: bf16 travels, sums are fp32.",
               {"reduce_dtype", "mixed_precision_reduce", "grad_reduce_dtype"}},
              {"output",
               choice(p.output, {"params", "fp32", "bf16"}, dtype_synonyms()),
               false,
               kMathematics,
               "What one stage passes on to the next; params: as precision.params.",
               {"output_dtype"}},
              {"buffers",
               choice(p.buffers, {"fp32", "bf16"}, dtype_synonyms()),
               false,
               kMathematics,
               "Tables that are not trained: those of rotary positions.",
               {"buffer_dtype"}},
              {"keep_fp32",
               TextListValue{&p.keep_fp32},
               false,
               kMathematics,
               "With params bf16 or fp16: the parameters that are held and used in fp32, by "
               "patterns "
               "of "
               "names (* and ?), such as [\"*norm.weight\"].",
               {"fp32_params"}},
          },
          loss_scale_fields(p.loss_scale))};
}

Section memory_section(MemorySection& m) {
  return {
      "memory",
      "What is kept.",
      {{"recompute",
        choice(m.recompute, {"none", "full", "selective"},
               {{"true", "full"},
                {"on", "full"},
                {"all", "full"},
                {"block", "full"},
                {"uniform", "full"},
                {"false", "none"},
                {"off", "none"},
                {"no", "none"},
                {"op", "selective"}}),
        false,
        kFree,
        "full: a block's activations are computed again in the backward pass; selective: only "
        "those that are cheap, attention and matrix products are kept.",
        {"activation_checkpointing", "gradient_checkpointing", "activation_checkpoint",
         "recompute_granularity", "use_gradient_checkpointing"}},
       {"recompute_every",
        integer(m.recompute_every, 1, kMaxSize),
        false,
        kFree,
        "With recompute full: only every so many-th stage is computed again.",
        {}},
       {"offload",
        choice(m.offload, {"none", "optimizer", "all"},
               {{"false", "none"},
                {"off", "none"},
                {"no", "none"},
                {"true", "all"},
                {"on", "all"},
                {"full", "all"},
                {"moments", "optimizer"},
                {"optimizer_states", "optimizer"}}),
        false,
        kFree,
        "device cuda: what lies in the host's memory instead of the GPU's: the optimizer's "
        "moments "
        "and master weights, or all states.",
        {"cpu_offload", "offload_optimizer", "enable_cpu_offload"}},
       {"offload_dir",
        path_or("none", m.offload_dir, "a folder"),
        false,
        kFree,
        "A folder on a local disk for the optimizer's moments, which then take a few buckets' "
        "memory alone. Each rank reserves their size at the start.",
        {"nvme_path"}},
       {"loss_chunk",
        integer_or("auto", m.loss_chunk, 1, kMaxSize),
        false,
        kFree,
        "Tokens of a micro-batch whose logits exist at once. auto: 64 MiB of logits; with params "
        "bf16 or fp16 all tokens, since several chunks need an fp32 sum of the head's gradient.",
        {"cross_entropy_chunk_size"}}}};
}

}  // namespace tessera
