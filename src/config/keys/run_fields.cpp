#include "config/keys/sections.h"

#include <limits>

#include "base/fields/field_kinds.h"

namespace tessera {

Section run_section(RunSection& r) {
  return {
      "run",
      "The run.",
      {
          {"dir",
           path(r.dir, "a folder"),
           true,
           kFree,
           "The run folder: checkpoints, metrics and logs.",
           {"output_dir", "save_dir", "out_dir", "dump_folder", "default_root_dir", "run_dir"}},
          {"seed",
           integer(r.seed, 0, std::numeric_limits<int64_t>::max()),
           false,
           kMathematics,
           "Names the initial weights, the order of samples and the dropout masks.",
           {}},
          {"threads",
           integer_or("auto", r.threads, 1, 1024),
           false,
           kFree,
           "Threads of each rank; they change the last bits of a matrix product. auto: "
           "OMP_NUM_THREADS (1 to 1024) if it is set, else 1.",
           {"num_threads"}},
          {"doctor",
           choice(r.doctor, {"quick", "off"}, {{"false", "off"}, {"none", "off"}}),
           false,
           kFree,
           "Whether a start of several ranks looks at their machines first and warns of what is "
           "wrong (docs/doctor.md).",
           {}},
      }};
}

Section top_level_section(std::string& device) {
  return {"",
          "",
          {{"device",
            choice(device, {"cpu", "cuda"},
                   {{"gpu", "cuda"}, {"cuda:0", "cuda"}, {"nvidia", "cuda"}, {"host", "cpu"}}),
            false,
            kFree,
            "Where ranks compute.",
            {}}}};
}

Section communication_section(CommunicationSection& c) {
  return {
      "communication",
      "How ranks exchange tensors.",
      {
          {"timeout",
           integer(c.timeout, 1, kMaxTimeout),
           false,
           kFree,
           "Seconds after which a wait for another rank is an error.",
           {}},
          {"file_timeout",
           integer(c.file_timeout, 1, kMaxTimeout),
           false,
           kFree,
           "The same where the other rank may be at work on files (start, save, load); timeout, "
           "if "
           "that is longer.",
           {}},
          {"shared_memory",
           FlagValue{&c.shared_memory},
           false,
           kFree,
           "Ranks of one node exchange tensors through /dev/shm; false: through MPI messages.",
           {}},
      }};
}

Section debug_section(DebugSection& d) {
  return {"debug",
          "Slower runs that find mistakes in the program.",
          {
              {"poison_released",
               FlagValue{&d.poison_released},
               false,
               kFree,
               "Released parameters read as NaN.",
               {}},
              {"check_collectives",
               FlagValue{&d.check_collectives},
               false,
               kFree,
               "Ranks compare every collective operation before it runs.",
               {}},
              {"overlap",
               FlagValue{&d.overlap},
               false,
               kFree,
               "false: no communication runs beside the computation; the numbers are the same.",
               {}},
              {"compare_replicas_every",
               integer(d.compare_replicas_every, 0, kMaxCount),
               false,
               kFree,
               "Steps between comparisons of all weights and gradients that ranks hold alike; a "
               "difference ends the run. 0: none.",
               {}},
          }};
}

}  // namespace tessera
