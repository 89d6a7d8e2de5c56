#include "config/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tessera {
namespace {

constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxCount = 1'000'000'000'000;
constexpr int64_t kMaxTimeout = 30 * 24 * 3600;
constexpr OnResume kMathematics = OnResume::kMathematics;
constexpr OnResume kFree = OnResume::kFree;

template <typename T>
IntegerValue integer(T& member, int64_t min, int64_t max) {
  return {[&member] { return std::optional(static_cast<int64_t>(member)); },
          [&member](std::optional<int64_t> value) { member = static_cast<T>(*value); }, min, max,
          ""};
}

// An int whose 0 is written as `word`.
IntegerValue integer_or(const char* word, int& member, int64_t min, int64_t max) {
  return {[&member] { return member == 0 ? std::nullopt : std::optional<int64_t>(member); },
          [&member](std::optional<int64_t> value) { member = static_cast<int>(value.value_or(0)); },
          min, max, word};
}

IntegerValue integer_or(const char* word, std::optional<int64_t>& member, int64_t min,
                        int64_t max) {
  return {[&member] { return member; }, [&member](std::optional<int64_t> value) { member = value; },
          min, max, word};
}

RealRange above(double min) {
  return {.min = min, .above_min = true};
}
constexpr RealRange kRate{.min = 0, .max = 1, .below_max = true};
RealRange at_least(double min) {
  return {.min = min};
}

// An enumeration whose values are 0, 1, ... in the order of `words`.
template <typename E>
ChoiceValue choice(E& member, std::vector<std::string> words) {
  return {std::move(words), [&member] { return static_cast<int>(member); },
          [&member](int index) { member = static_cast<E>(index); }};
}

ChoiceValue choice(std::string& member, std::vector<std::string> words) {
  const auto get = [&member, words] {
    for (size_t i = 0; i < words.size(); ++i) {
      if (words[i] == member) return static_cast<int>(i);
    }
    return -1;
  };
  return {words, get, [&member, words](int index) { member = words[static_cast<size_t>(index)]; }};
}

// A key that has one value so far.
ChoiceValue only(const char* word) {
  return {{word}, [] { return 0; }, [](int) {}};
}

Section model_section(LlamaConfig& m) {
  return {"model",
          "The model: these keys (Hugging Face's names), or `config` alone.",
          {
              {"type", only("llama"), true, kMathematics, "The architecture.", {"model_type"}},
              {"hidden_size",
               integer(m.hidden_size, 1, kMaxSize),
               true,
               kMathematics,
               "Width of the residual stream.",
               {"dim", "d_model"}},
              {"intermediate_size",
               integer(m.intermediate_size, 1, kMaxSize),
               true,
               kMathematics,
               "Width of the feed-forward layer.",
               {"ffn_hidden_size"}},
              {"num_hidden_layers",
               integer(m.num_hidden_layers, 1, kMaxSize),
               true,
               kMathematics,
               "Number of blocks.",
               {"num_layers", "n_layers"}},
              {"num_attention_heads",
               integer(m.num_attention_heads, 1, kMaxSize),
               true,
               kMathematics,
               "Query heads; divides hidden_size.",
               {"num_heads", "heads"}},
              {"num_key_value_heads",
               integer(m.num_key_value_heads, 1, kMaxSize),
               false,
               kMathematics,
               "Key and value heads; divides num_attention_heads.",
               {"num_kv_heads", "num_query_groups"}},
              {"vocab_size",
               integer(m.vocab_size, 1, kMaxSize),
               true,
               kMathematics,
               "Number of token ids.",
               {}},
              {"rope_theta",
               RealValue{&m.rope_theta, above(0)},
               false,
               kMathematics,
               "Base of the rotary position embedding.",
               {"rotary_base"}},
              {"rms_norm_eps",
               RealValue{&m.rms_norm_eps, above(0)},
               false,
               kMathematics,
               "Added to the mean square in RMSNorm.",
               {"norm_eps", "layernorm_epsilon"}},
              {"tie_word_embeddings",
               FlagValue{&m.tie_word_embeddings},
               false,
               kMathematics,
               "Output layer and embedding share their weights.",
               {}},
              {"initializer_range",
               RealValue{&m.initializer_range, at_least(0)},
               false,
               kMathematics,
               "Standard deviation of the initial weights.",
               {"init_method_std"}},
              {"attention_dropout",
               RealValue{&m.attention_dropout, kRate},
               false,
               kMathematics,
               "Part of the attention probabilities that is dropped in training.",
               {"attn_dropout", "attn_pdrop"}},
              {"hidden_dropout",
               RealValue{&m.hidden_dropout, kRate},
               false,
               kMathematics,
               "Part of what each layer adds to the residual stream that is dropped in training.",
               {"resid_pdrop", "hidden_dropout_prob", "residual_dropout"}},
              {"embedding_dropout",
               RealValue{&m.embedding_dropout, kRate},
               false,
               kMathematics,
               "Part of the embedding's output that is dropped in training.",
               {"embd_pdrop"}},
          }};
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
          }};
}

Section optimizer_section(AdamWConfig& o) {
  return {"optimizer",
          "AdamW (Loshchilov and Hutter 2019).",
          {
              {"type", only("adamw"), false, kMathematics, "The optimizer.", {"name"}},
              {"lr",
               RealValue{&o.lr, above(0)},
               false,
               kMathematics,
               "Peak learning rate.",
               {"learning_rate"}},
              {"betas",
               RealPairValue{&o.beta1, &o.beta2, {.min = 0, .max = 1, .below_max = true}},
               false,
               kMathematics,
               "Decay of the first and second moment.",
               {"adam_betas"}},
              {"eps",
               RealValue{&o.eps, above(0)},
               false,
               kMathematics,
               "Added to the root of the second moment.",
               {"epsilon", "adam_eps"}},
              {"weight_decay",
               RealValue{&o.weight_decay, at_least(0)},
               false,
               kMathematics,
               "Decoupled weight decay, on matrices only.",
               {"wd"}},
          }};
}

Section schedule_section(ScheduleConfig& s) {
  return {"schedule",
          "The learning rate over the run.",
          {
              {"type",
               choice(s.type, {"constant", "linear", "cosine"}),
               false,
               kMathematics,
               "Shape after warm-up.",
               {"lr_decay_style", "lr_scheduler_type"}},
              {"warmup_steps",
               integer(s.warmup_steps, 0, kMaxCount),
               false,
               kMathematics,
               "Steps of linear warm-up; at most training.steps.",
               {"lr_warmup_iters"}},
              {"min_lr_ratio",
               RealValue{&s.min_lr_ratio, {.min = 0, .max = 1}},
               false,
               kMathematics,
               "Learning rate at and after the last step, as a part of the peak. Unused by type "
               "constant.",
               {"min_lr"}},
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

}  // namespace

std::vector<Section> describe(Config& c) {
  const std::string prefixes = "prefixes of .bin/.idx pairs";
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
       }},
      {"precision",
       "Element types.",
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
            "Tables that are not trained, such as those of rotary positions.",
            {"buffer_dtype"}},
           {"keep_fp32",
            TextListValue{&c.precision.keep_fp32},
            false,
            kMathematics,
            "With params bf16 or fp16: the parameters that are held and used in fp32, by patterns "
            "of "
            "names (* and ?), such as [\"*norm.weight\"].",
            {"fp32_params"}},
       }},
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
         {"nvme_path"}}}},
      {"data",
       "Token files in Megatron's layout (`tessera data pack` writes them).",
       {
           {"train",
            TextListValue{&c.data.train},
            true,
            kFree,
            "Training data, in this order: " + prefixes + ".",
            {"train_data", "path"}},
           {"valid",
            TextListValue{&c.data.valid},
            false,
            kFree,
            "Held-out data: " + prefixes + ".",
            {"validation", "val"}},
           {"seq_len",
            integer(c.data.seq_len, 1, kMaxSize),
            true,
            kMathematics,
            "Tokens of one sample.",
            {"seq_length", "sequence_length", "block_size"}},
       }},
      training_section(c.training),
      optimizer_section(c.optimizer),
      schedule_section(c.schedule),
      {"eval",
       "Validation loss on data.valid.",
       {
           {"every",
            integer(c.eval.every, 0, kMaxCount),
            false,
            kFree,
            "Steps between validations; 0: none.",
            {"eval_interval", "interval", "eval_steps"}},
           {"batches",
            integer(c.eval.batches, 1, kMaxCount),
            false,
            kFree,
            "Global batches of one validation.",
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
