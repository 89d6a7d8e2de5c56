#include "config/keys/fields.h"

#include "config/keys/sections.h"

namespace tessera {

std::vector<Section> describe(Config& c) {
  return {
      run_section(c.run),
      top_level_section(c.device),
      model_section(c.model),
      parallel_section(c.parallel),
      precision_section(c.precision),
      memory_section(c.memory),
      data_section(c.data),
      training_section(c.training),
      optimizer_section(c.optimizer),
      schedule_section(c.schedule),
      eval_section(c.eval),
      checkpoint_section(c.checkpoint),
      communication_section(c.communication),
      watchdog_section(c.watchdog),
      debug_section(c.debug),
  };
}

}  // namespace tessera
