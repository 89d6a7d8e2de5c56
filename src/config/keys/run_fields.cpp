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

Section watchdog_section(WatchdogSection& w) {
  return {
      "watchdog",
      "When a run of several ranks that makes no progress is ended, with a verdict on who holds it "
      "up. All in seconds without progress of a rank that others wait for; 0: never.",
      {
          {"start",
           integer(w.start, 0, kMaxTimeout),
           false,
           kFree,
           "From the start of the processes to the first step: until all of them are there and MPI "
           "runs, and then for each part of opening data, allocating the model and loading "
           "weights.",
           {}},
          {"first_step",
           integer(w.first_step, 0, kMaxTimeout),
           false,
           kFree,
           "In the first step of a start, and until it is known how long steps take.",
           {}},
          {"step",
           integer_or("auto", w.step, 0, kMaxTimeout),
           false,
           kFree,
           "In a step. auto: 20 times the median of the last 31 steps, at least 60.",
           {}},
          {"validation",
           integer(w.validation, 0, kMaxTimeout),
           false,
           kFree,
           "In a stage of a batch of a validation.",
           {}},
          {"save",
           integer(w.save, 0, kMaxTimeout),
           false,
           kFree,
           "While the loop waits for a save, and at the end of the run.",
           {}},
      }};
}

namespace {

std::vector<Field> inject_fields(InjectedFault& f) {
  return {
      {"rank",
       integer(f.rank, 0, kMaxSize),
       true,
       kFree,
       "The rank of the world that does it.",
       {}},
      {"step",
       integer(f.step, 0, kMaxCount),
       false,
       kFree,
       "The step in which it does it; 0 with at: start.",
       {}},
      {"at",
       choice(f.at, {"start", "data", "compute", "collective", "save", "validation"}),
       true,
       kFree,
       "When: as the run folder is open; before the batch is read; after the first micro-batch's "
       "backward pass; as it starts the step's first collective of several ranks; as the save or "
       "the validation of the step begins.",
       {}},
      {"do",
       choice(f.deed, {"throw", "exit", "kill", "stop", "skip", "resize"}),
       true,
       kFree,
       "throw: an error; exit: the process ends with exit code 1 and without a word; kill, stop: "
       "SIGKILL, SIGSTOP; skip: it leaves the collective out; resize: it starts it with half the "
       "elements (the first that has two or more).",
       {}},
  };
}

}  // namespace

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
              {"inject",
               map_or("none", d.inject, inject_fields),
               false,
               kFree,
               "A fault that one rank makes, to see what becomes of the run: every start that "
               "comes by that step makes it again.",
               {}},
          }};
}

}  // namespace tessera
