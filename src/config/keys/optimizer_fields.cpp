#include "config/keys/sections.h"

#include "base/fields/field_kinds.h"

namespace tessera {
namespace {

RealOrWordValue real_or_word(std::optional<double>& member, RealRange range, const char* word) {
  using Value = std::variant<size_t, double>;
  return {{word},
          range,
          [&member] { return member ? Value(*member) : Value(size_t{0}); },
          [&member](Value value) {
            const double* number = std::get_if<double>(&value);
            member = number ? std::optional(*number) : std::nullopt;
          }};
}

RealOrWordValue loss_scale(LossScaleConfig& l) {
  using Value = std::variant<size_t, double>;
  return {{"auto", "dynamic"},
          at_least(1),
          [&l] {
            return l.mode == LossScaleMode::kStatic ? Value(l.value)
                                                    : Value(static_cast<size_t>(l.mode));
          },
          [&l](Value value) {
            if (const double* number = std::get_if<double>(&value)) {
              l.mode = LossScaleMode::kStatic;
              l.value = *number;
            } else {
              l.mode = static_cast<LossScaleMode>(std::get<size_t>(value));
            }
          }};
}

std::vector<Field> group_fields(ParameterGroup& g) {
  return {
      {"params",
       TextListValue{&g.params},
       true,
       kMathematics,
       "Patterns of parameter names (Hugging Face's): `*` is any text, `?` any character. The "
       "first group that fits a parameter rules it; a pattern that fits none is an error.",
       {"names", "patterns"}},
      {"lr_scale",
       RealValue{&g.lr_scale, above(0)},
       false,
       kMathematics,
       "Multiplies the learning rate.",
       {"lr_mult", "lr_multiplier"}},
      {"weight_decay",
       real_or_word(g.weight_decay, at_least(0), "default"),
       false,
       kMathematics,
       "Weight decay of every parameter of the group, matrix or not; default: as without a group.",
       {"wd"}},
      {"frozen",
       FlagValue{&g.frozen},
       false,
       kMathematics,
       "Never changed: no gradient, no optimizer state, no part in the gradient norm.",
       {"freeze", "requires_grad", "trainable"}},
  };
}

}  // namespace

Section optimizer_section(OptimizerConfig& o) {
  return {"optimizer",
          "The update of the weights.",
          {
              {"type",
               choice(o.type, {"adamw", "adam", "sgd"},
                      {{"adamw_torch", "adamw"},
                       {"adamw_torch_fused", "adamw"},
                       {"adamw_hf", "adamw"},
                       {"fusedadamw", "adamw"},
                       {"fusedadam", "adam"},
                       {"fused_adam", "adam"},
                       {"deepspeedcpuadam", "adam"},
                       {"momentum", "sgd"},
                       {"torch.optim.adamw", "adamw"},
                       {"torch.optim.adam", "adam"},
                       {"torch.optim.sgd", "sgd"}}),
               false,
               kMathematics,
               "adamw (Loshchilov and Hutter 2019), adam (Kingma and Ba 2015) or sgd.",
               {"name", "optim", "optimizer"}},
              {"lr",
               RealValue{&o.lr, above(0)},
               false,
               kMathematics,
               "Peak learning rate.",
               {"learning_rate", "max_lr", "peak_lr"}},
              {"betas",
               RealPairValue{&o.beta1, &o.beta2, kRate},
               false,
               kMathematics,
               "Decay of the first and second moment. adamw and adam only.",
               {"adam_betas"}},
              {"eps",
               RealValue{&o.eps, above(0)},
               false,
               kMathematics,
               "Added to the root of the second moment. adamw and adam only.",
               {"epsilon", "adam_eps", "adam_epsilon"}},
              {"momentum",
               RealValue{&o.momentum, kRate},
               false,
               kMathematics,
               "Decay of the sum of gradients; 0: none is kept. sgd only.",
               {}},
              {"nesterov",
               FlagValue{&o.nesterov},
               false,
               kMathematics,
               "Nesterov's momentum. sgd only.",
               {}},
              {"weight_decay",
               RealValue{&o.weight_decay, at_least(0)},
               false,
               kMathematics,
               "Weight decay, on matrices only: decoupled from the gradient in adamw, added to it "
               "in adam and sgd.",
               {"wd"}},
              {"moments",
               choice(o.moments, {"fp32", "bf16"}, dtype_synonyms()),
               false,
               kMathematics,
               "Element type in which moments are kept; they are computed in fp32. With "
               "precision.params "
               "fp64, fp32 stands for fp64.",
               {"moment_dtype", "state_dtype"}},
              {"groups",
               map_list(o.groups, group_fields),
               false,
               kMathematics,
               "Parameters that are treated otherwise than the rest.",
               {"param_groups", "parameter_groups"}},
          }};
}

Section schedule_section(ScheduleConfig& s) {
  return {"schedule",
          "The learning rate over the run.",
          {
              {"type",
               choice(s.type, {"constant", "linear", "cosine"},
                      {{"none", "constant"},
                       {"const", "constant"},
                       {"constant_with_warmup", "constant"},
                       {"linear_with_warmup", "linear"},
                       {"linear_decay", "linear"},
                       {"cosine_with_warmup", "cosine"},
                       {"cosine_annealing", "cosine"},
                       {"cosineannealing", "cosine"},
                       {"cosineannealinglr", "cosine"},
                       {"cosine_decay", "cosine"},
                       {"cosine_with_min_lr", "cosine"},
                       {"warmupcosinelr", "cosine"},
                       {"warmupdecaylr", "linear"},
                       {"warmuplr", "constant"}}),
               false,
               kMathematics,
               "Shape after warm-up.",
               {"lr_decay_style", "lr_scheduler_type", "lr_scheduler", "scheduler", "decay_type"}},
              {"warmup_steps",
               integer(s.warmup_steps, 0, kMaxCount),
               false,
               kMathematics,
               "Steps of linear warm-up; at most those of the schedule.",
               {"lr_warmup_iters", "warmup", "warmup_iters", "num_warmup_steps", "lr_warmup_steps",
                "warmup_num_steps"}},
              {"min_lr_ratio",
               RealValue{&s.min_lr_ratio, {.min = 0, .max = 1}},
               false,
               kMathematics,
               "Learning rate at and after the schedule's last step, as a part of the peak. Unused "
               "by type constant.",
               {"min_lr", "min_lr_factor", "lr_min", "min_lr_rate", "final_lr_ratio"}},
              {"steps",
               integer_or("auto", s.steps, 1, kMaxCount),
               false,
               kFree,
               "Steps that the schedule spans; after them the learning rate stays at its minimum. "
               "auto: training.steps of the run's first start, whatever it is later.",
               {"lr_decay_steps", "lr_decay_iters"}},
          }};
}

std::vector<Field> loss_scale_fields(LossScaleConfig& l) {
  return {
      {"loss_scale",
       loss_scale(l),
       false,
       kMathematics,
       "What the loss is multiplied with for the backward pass in fp16. dynamic: halved at an "
       "overflow, doubled after a while without; auto: dynamic in fp16, none otherwise.",
       {"grad_scaler"}},
      {"initial_loss_scale",
       RealValue{&l.initial, at_least(1)},
       false,
       kMathematics,
       "The dynamic loss scale at the start.",
       {"init_scale", "initial_scale_power"}},
      {"loss_scale_growth_interval",
       integer(l.growth_interval, 1, kMaxCount),
       false,
       kMathematics,
       "Steps without overflow after which the dynamic loss scale doubles.",
       {"loss_scale_window", "growth_interval"}},
      {"loss_scale_hysteresis",
       integer(l.hysteresis, 1, kMaxSize),
       false,
       kMathematics,
       "Overflows until the dynamic loss scale is halved; counted anew once it grows.",
       {"hysteresis"}},
  };
}

}  // namespace tessera
