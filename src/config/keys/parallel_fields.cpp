#include "config/keys/sections.h"

#include "base/fields/field_kinds.h"

namespace tessera {

Section parallel_section(ParallelSection& p) {
  return {
      "parallel",
      "The mesh: ranks = dp_replicate x dp_shard x tp, tp fastest.",
      {
          {"tp",
           integer(p.tp, 1, kMaxSize),
           false,
           kFree,
           "Tensor parallelism: ranks that split each layer.",
           {"tensor_parallel", "tensor_model_parallel_size", "tensor_parallel_degree",
            "tensor_parallel_size", "tp_size", "tp_degree"}},
          {"dp_shard",
           integer_or("auto", p.dp_shard, 1, kMaxSize),
           false,
           kFree,
           "Data-parallel ranks that share one copy of the states; auto: what is left.",
           {"fsdp", "data_parallel_shard_degree", "dp", "dp_size", "data_parallel_size",
            "fsdp_size"}},
          {"dp_replicate",
           integer(p.dp_replicate, 1, kMaxSize),
           false,
           kFree,
           "Copies of the sharded states.",
           {"data_parallel_replicate_degree", "ddp", "replicas"}},
          {"zero",
           integer(p.zero, 0, 3),
           false,
           kFree,
           "ZeRO stage (Rajbhandari et al. 2020). 0: every rank holds all states (DDP); 1: "
           "optimizer states are sharded; 2: gradients too; 3: parameters too.",
           {"zero_stage", "stage", "zero_optimization", "sharding_strategy"}},
          {"reshard_after_forward",
           FlagOrCountValue{&p.reshard_after_forward, kReshardAlways, kReshardNever},
           false,
           kFree,
           "zero 3: release parameters between forward and backward. false: keep all gathered; a "
           "number: keep those of so many stages at the end of the model, head included.",
           {}},
          {"prefetch",
           integer(p.prefetch, 0, 2),
           false,
           kFree,
           "How many stages ahead parameters are gathered, forward and backward.",
           {"forward_prefetch", "backward_prefetch"}},
          {"reduce_per_micro_batch",
           choice(p.reduce_per_micro_batch, {"auto", "true", "false"},
                  {{"yes", "true"}, {"on", "true"}, {"no", "false"}, {"off", "false"}}),
           false,
           kFree,
           "zero 2 and 3: false keeps gradients in full over the micro-batches of a step and "
           "reduces once: less traffic, more memory. auto: true there.",
           {"no_sync", "reshard_after_microbatch"}},
          {"allow_tp_across_nodes",
           FlagValue{&p.allow_tp_across_nodes},
           false,
           kFree,
           "Whether a tensor-parallel group may have ranks on several nodes.",
           {}},
          {"sequence_parallel",
           FlagValue{&p.sequence_parallel},
           false,
           kFree,
           "With tp above 1: activations between layers are split by tokens, so norms, dropout "
           "and additions take 1/tp of the time and memory; the same bytes travel. tp must divide "
           "the tokens of a micro-batch.",
           {"sp", "enable_sequence_parallel"}},
          {"tp_overlap",
           choice(p.tp_overlap, {"off", "backward", "ring"},
                  {{"false", "off"},
                   {"none", "off"},
                   {"no", "off"},
                   {"true", "backward"},
                   {"on", "backward"}}),
           false,
           kFree,
           "What runs beside the communication of tensor parallelism. backward: the product of a "
           "weight's gradient, beside the sum of the input's; ring, with sequence_parallel: also "
           "the products around each gather and sum of a linear layer, in tp chunks; off: "
           "nothing. "
           "Log and metrics say how much was hidden.",
           {"tp_comm_overlap", "async_tensor_parallel"}},
      }};
}

}  // namespace tessera
