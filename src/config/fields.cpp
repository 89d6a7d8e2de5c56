#include "config/fields.h"

#include <algorithm>
#include <iterator>

#include "base/field_kinds.h"
#include "config/data_fields.h"
#include "config/optimizer_fields.h"

namespace tessera {
namespace {

// The keys of the model that is chosen; choosing another replaces it, and so the keys.
Section model_section(AnyModel& model) {
  const std::vector<std::string> types = model_types();
  const auto get = [&model, types] {
    return static_cast<int>(std::find(types.begin(), types.end(), model->type()) - types.begin());
  };
  const auto set = [&model, types](int index) {
    const std::string& type = types[static_cast<size_t>(index)];
    if (model->type() != type) model = AnyModel(make_model(type));
  };
  std::vector<Field> fields = {{"type",
                                ChoiceValue{types, get, set},
                                true,
                                kMathematics,
                                "The architecture.",
                                {"model_type"}}};
  for (Field& field : model->fields()) fields.push_back(std::move(field));
  return {"model", "The model: these keys (Hugging Face's names), or `config` alone.",
          std::move(fields)};
}

Section training_section(TrainingSection& t) {
  return {"training",
          "The loop.",
          {
              {"steps",
               integer(t.steps, 1, kMaxCount),
               true,
               kFree,
               "Updates of the whole run; the schedule spans them.",
               {"max_steps", "train_iters", "num_steps"}},
              {"global_batch_size",
               integer(t.global_batch_size, 1, kMaxSize),
               true,
               kMathematics,
               "Samples of one update over all ranks. It need not divide by micro_batch_size x "
               "data-parallel ranks.",
               {"batch_size"}},
              {"micro_batch_size",
               integer(t.micro_batch_size, 1, kMaxSize),
               false,
               kFree,
               "Samples of one forward and backward pass on one rank.",
               {}},
              {"clip_grad_norm",
               RealValue{&t.clip_grad_norm, at_least(0)},
               false,
               kMathematics,
               "Largest norm of all gradients together; 0: no clipping.",
               {"max_grad_norm", "max_norm", "clip_grad", "grad_clip"}},
              {"clip_grad_value",
               RealValue{&t.clip_grad_value, at_least(0)},
               false,
               kMathematics,
               "Largest absolute value of each element of the gradient; 0: no clipping. Not "
               "together with clip_grad_norm.",
               {"gradient_clip_val"}},
              {"on_nonfinite",
               choice(t.on_nonfinite, {"stop", "skip", "rollback"}),
               false,
               kFree,
               "What a loss or gradient that is not finite does. stop: an error; skip: the step "
               "makes no update; rollback: the last checkpoint is loaded and training goes on "
               "without those samples.",
               {"skip_nonfinite"}},
              {"max_skips",
               integer(t.max_skips, 1, kMaxCount),
               false,
               kFree,
               "Skips or rollbacks in a row after which one more is an error.",
               {}},
              {"log_every",
               integer(t.log_every, 0, kMaxCount),
               false,
               kFree,
               "Steps between progress lines; 0: none (metrics.jsonl still has every step).",
               {"log_interval", "log_freq"}},
              {"stop_after",
               integer_or("none", t.stop_after, 1, kMaxCount),
               false,
               kFree,
               "Save and stop after this step as if asked to (exit code 3), schedule unchanged.",
               {"exit_interval"}},
              {"log_samples",
               FlagValue{&t.log_samples},
               false,
               kFree,
               "Write the ids of each global batch into metrics.jsonl.",
               {}},
              {"log_stage_norms",
               FlagValue{&t.log_stage_norms},
               false,
               kFree,
               "Write the gradient norm of each stage into metrics.jsonl.",
               {}},
          }};
}

Section checkpoint_section(CheckpointSection& c) {
  return {"checkpoint",
          "Saving and starting again.",
          {
              {"every",
               integer(c.every, 0, kMaxCount),
               false,
               kFree,
               "Steps between checkpoints; 0: only at the end and on request.",
               {"save_interval", "save_every", "interval", "save_steps"}},
              {"keep",
               integer(c.keep, 0, kMaxSize),
               false,
               kFree,
               "How many checkpoints stay; 0: all.",
               {"save_total_limit", "keep_latest_k"}},
              {"resume",
               TextValue{&c.resume, "", "auto, none or a step folder"},
               false,
               kFree,
               "auto: from the newest whole checkpoint of the run folder, if there is one; none: "
               "never; a path: from that step folder.",
               {"resume_from", "load"}},
              {"init_from",
               TextValue{&c.init_from, "none", "a step folder"},
               false,
               kFree,
               "A step folder whose weights a new run starts from, such as an imported model.",
               {"pretrained"}},
          }};
}

std::vector<Field> joined(std::vector<Field> fields, std::vector<Field> more) {
  std::move(more.begin(), more.end(), std::back_inserter(fields));
  return fields;
}

}  // namespace

std::vector<Section> describe(Config& c) {
  return {
      {"run",
       "The run.",
       {
           {"dir",
            TextValue{&c.run.dir, "", "a folder"},
            true,
            kFree,
            "The run folder: checkpoints, metrics and logs.",
            {"output_dir", "save_dir"}},
           {"seed",
            integer(c.run.seed, 0, std::numeric_limits<int64_t>::max()),
            false,
            kMathematics,
            "Names the initial weights, the order of samples and the dropout masks.",
            {}},
           {"threads",
            integer_or("auto", c.run.threads, 1, 1024),
            false,
            kFree,
            "Threads of each rank; they change the last bits of a matrix product. auto: "
            "OMP_NUM_THREADS if it is set, else 1.",
            {"num_threads"}},
       }},
      {"",
       "",
       {{"device", choice(c.device, {"cpu", "cuda"}), false, kFree, "Where ranks compute.", {}}}},
      model_section(c.model),
      {"parallel",
       "The mesh: ranks = dp_replicate x dp_shard x tp, tp fastest.",
       {
           {"tp",
            integer(c.parallel.tp, 1, kMaxSize),
            false,
            kFree,
            "Tensor parallelism: ranks that split each layer.",
            {"tensor_parallel", "tensor_model_parallel_size", "tensor_parallel_degree"}},
           {"dp_shard",
            integer_or("auto", c.parallel.dp_shard, 1, kMaxSize),
            false,
            kFree,
            "Data-parallel ranks that share one copy of the states; auto: what is left.",
            {"fsdp", "data_parallel_shard_degree"}},
           {"dp_replicate",
            integer(c.parallel.dp_replicate, 1, kMaxSize),
            false,
            kFree,
            "Copies of the sharded states.",
            {"data_parallel_replicate_degree"}},
           {"zero",
            integer(c.parallel.zero, 0, 3),
            false,
            kFree,
            "ZeRO stage (Rajbhandari et al. 2020). 0: every rank holds all states (DDP); 1: "
            "optimizer states are sharded; 2: gradients too; 3: parameters too.",
            {"zero_stage"}},
           {"reshard_after_forward",
            FlagOrCountValue{&c.parallel.reshard_after_forward, kReshardAlways, kReshardNever},
            false,
            kFree,
            "zero 3: release parameters between forward and backward. false: keep all gathered; a "
            "number: keep those of so many stages at the end of the model, head included.",
            {}},
           {"prefetch",
            integer(c.parallel.prefetch, 0, 2),
            false,
            kFree,
            "How many stages ahead parameters are gathered, forward and backward.",
            {"forward_prefetch", "backward_prefetch"}},
           {"reduce_per_micro_batch",
            choice(c.parallel.reduce_per_micro_batch, {"auto", "true", "false"}),
            false,
            kFree,
            "zero 2 and 3: false keeps gradients in full over the micro-batches of a step and "
            "reduces once: less traffic, more memory. auto: true there.",
            {"no_sync", "reshard_after_microbatch"}},
           {"allow_tp_across_nodes",
            FlagValue{&c.parallel.allow_tp_across_nodes},
            false,
            kFree,
            "Whether a tensor-parallel group may have ranks on several nodes.",
            {}},
           {"sequence_parallel",
            FlagValue{&c.parallel.sequence_parallel},
            false,
            kFree,
            "With tp above 1: activations between layers are split by tokens, so norms, dropout "
            "and additions take 1/tp of the time and memory; the same bytes travel. tp must divide "
            "the tokens of a micro-batch.",
            {"sp", "enable_sequence_parallel"}},
           {"tp_overlap",
            choice(c.parallel.tp_overlap, {"off", "backward", "ring"}),
            false,
            kFree,
            "What runs beside the communication of tensor parallelism. backward: the product of a "
            "weight's gradient, beside the sum of the input's; ring, with sequence_parallel: also "
            "the products around each gather and sum of a linear layer, in tp chunks; off: "
            "nothing. "
            "Log and metrics say how much was hidden.",
            {"tp_comm_overlap", "async_tensor_parallel"}},
       }},
      {"precision", "Element types.",
       joined(
           {
               {"params",
                choice(c.precision.params, {"fp32", "bf16", "fp16", "fp64"}),
                false,
                kMathematics,
                "Parameters and activations; master weights are always at least fp32. fp64: "
                "everything, "
                "for proofs.",
                {"dtype", "param_dtype"}},
               {"reduce",
                choice(c.precision.reduce, {"fp32", "bf16", "bf16_wire"}),
                false,
                kMathematics,
                "Gradient sums over ranks. fp32: in fp32 (fp64 with params fp64); bf16: in bf16, "
                "rounded "
                "once; bf16_wire: bf16 travels, sums are fp32.",
                {"reduce_dtype"}},
               {"output",
                choice(c.precision.output, {"params", "fp32", "bf16"}),
                false,
                kMathematics,
                "What one stage passes on to the next; params: as precision.params.",
                {"output_dtype"}},
               {"buffers",
                choice(c.precision.buffers, {"fp32", "bf16"}),
                false,
                kMathematics,
                "Tables that are not trained: those of rotary positions.",
                {"buffer_dtype"}},
               {"keep_fp32",
                TextListValue{&c.precision.keep_fp32},
                false,
                kMathematics,
                "With params bf16 or fp16: the parameters that are held and used in fp32, by "
                "patterns "
                "of "
                "names (* and ?), such as [\"*norm.weight\"].",
                {"fp32_params"}},
           },
           loss_scale_fields(c.precision.loss_scale))},
      {"memory",
       "What is kept.",
       {{"recompute",
         choice(c.memory.recompute, {"none", "full", "selective"}),
         false,
         kFree,
         "full: a block's activations are computed again in the backward pass; selective: only "
         "those that are cheap, attention and matrix products are kept.",
         {"activation_checkpointing", "gradient_checkpointing"}},
        {"recompute_every",
         integer(c.memory.recompute_every, 1, kMaxSize),
         false,
         kFree,
         "With recompute full: only every so many-th stage is computed again.",
         {}},
        {"offload",
         choice(c.memory.offload, {"none", "optimizer", "all"}),
         false,
         kFree,
         "device cuda: what lies in the host's memory instead of the GPU's: the optimizer's "
         "moments "
         "and master weights, or all states.",
         {"cpu_offload"}},
        {"offload_dir",
         TextValue{&c.memory.offload_dir, "none", "a folder"},
         false,
         kFree,
         "A folder on a local disk for the optimizer's moments, which then take a few buckets' "
         "memory alone. Each rank reserves their size at the start.",
         {"nvme_path"}},
        {"loss_chunk",
         integer_or("auto", c.memory.loss_chunk, 1, kMaxSize),
         false,
         kFree,
         "Tokens of a micro-batch whose logits exist at once. auto: 64 MiB of logits; with params "
         "bf16 or fp16 all tokens, since several chunks need an fp32 sum of the head's gradient.",
         {"cross_entropy_chunk_size"}}}},
      data_section(c.data),
      training_section(c.training),
      optimizer_section(c.optimizer),
      schedule_section(c.schedule),
      {"eval",
       "Validation on data.valid: the loss, of images also the accuracy, of pairs the accuracy of "
       "targets and the exact match of whole sequences.",
       {
           {"every",
            integer(c.eval.every, 0, kMaxCount),
            false,
            kFree,
            "Steps between validations; 0: none.",
            {"eval_interval", "interval", "eval_steps"}},
           {"batches",
            integer_or("all", c.eval.batches, 1, kMaxCount),
            false,
            kFree,
            "Global batches of one validation; all: the whole of data.valid, each sample once.",
            {"eval_iters"}},
       }},
      checkpoint_section(c.checkpoint),
      {"communication",
       "How ranks exchange tensors.",
       {
           {"timeout",
            integer(c.communication.timeout, 1, kMaxTimeout),
            false,
            kFree,
            "Seconds after which a wait for another rank is an error.",
            {}},
           {"shared_memory",
            FlagValue{&c.communication.shared_memory},
            false,
            kFree,
            "Ranks of one node exchange tensors through /dev/shm; false: through MPI messages.",
            {}},
       }},
      {"debug",
       "Slower runs that find mistakes in the program.",
       {
           {"poison_released",
            FlagValue{&c.debug.poison_released},
            false,
            kFree,
            "Released parameters read as NaN.",
            {}},
           {"check_collectives",
            FlagValue{&c.debug.check_collectives},
            false,
            kFree,
            "Ranks compare every collective operation before it runs.",
            {}},
           {"overlap",
            FlagValue{&c.debug.overlap},
            false,
            kFree,
            "false: no communication runs beside the computation; the numbers are the same.",
            {}},
           {"compare_replicas_every",
            integer(c.debug.compare_replicas_every, 0, kMaxCount),
            false,
            kFree,
            "Steps between comparisons of all weights and gradients that ranks hold alike; a "
            "difference ends the run. 0: none.",
            {}},
       }},
  };
}

}  // namespace tessera
