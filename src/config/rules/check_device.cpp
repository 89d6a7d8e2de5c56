#include "config/rules/check_device.h"

#include <string>

#include "base/error.h"
#include "base/fields/field.h"
#include "parallel/device/cuda_support.h"

namespace tessera {

void check_device_rules(const Config& c, RuleReport& report) {
  if (c.device != "cuda") return;
  const auto refuse = [&](const std::string& key, const std::string& value, const char* rule) {
    report.broken({key, "device"},
                  "{}: {}; {}, and device is cuda; set device: cpu or leave it out", key, value,
                  rule);
  };
  AnyModel model = c.model;
  for (const ModelKey& key : model->keys()) {
    if (key.role != KeyRole::kDropoutRate) continue;
    const auto* rate = std::get_if<RealValue>(&key.value);
    if (rate && *rate->value > 0)
      refuse("model." + key.name, real_text(*rate->value),
             "dropout masks are made on the CPU only");
  }
  if (!c.memory.offload_dir.empty())
    refuse("memory.offload_dir", c.memory.offload_dir,
           "moments on a disk are updated by the CPU (memory.offload puts a GPU's into the host's "
           "memory)");
  if (c.debug.check_collectives)
    refuse("debug.check_collectives", "true", "calls are compared on the CPU alone");
}

void check_device_here(const Config& c) {
  if (c.device != "cuda") return;
  if (!built_with_cuda())
    fail_user("config",
              "device: cuda; this program was built without CUDA and computes on cpu; set device: "
              "cpu, or use a program built with `cmake --preset cuda`");
  if (visible_gpus() == 0)
    fail_user("config",
              "device: cuda; this process sees no GPU: nvidia-smi must list one, and "
              "CUDA_VISIBLE_DEVICES must not hide it; or set device: cpu");
}

}  // namespace tessera
