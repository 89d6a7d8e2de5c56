#pragma once

#include <sstream>

#include "training/program_runs.h"

namespace tessera {

// What must be equal between a broken run and a whole one: everything but times and memory.
inline std::string trace_of(const fs::path& run) {
  std::ifstream in(run / "metrics.jsonl");
  std::string trace;
  for (std::string line; std::getline(in, line);)
    if (line.find("\"loss\"") != std::string::npos)
      trace += line.substr(0, line.find(",\"tokens\"")) + "\n";
  return trace;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// A line of the table of steps, such as "        3     5.1234  1.000e-03 ...".
inline bool is_step_line(const std::string& line) {
  std::istringstream words(line);
  int64_t step = 0;
  double loss = 0;
  return static_cast<bool>(words >> step >> loss);
}

// Runs whose saves fail, and what is looked at after.
class SaveFaults : public ProgramRuns {
 protected:
  std::string keys(bool async, const std::string& on_error = "stop", int steps = 3) {
    return "--set training.log_every=1 --set schedule.steps=10 --set training.steps=" +
           std::to_string(steps) + " --set checkpoint.async=" + (async ? "true" : "false") +
           " --set checkpoint.on_error=" + on_error;
  }
  // The metrics of the run without a fault.
  std::string unbroken(int ranks, int steps) {
    fs::remove_all(folder_ / "unbroken");
    const Result result = train("", ranks, keys(true, "stop", steps) + " --set run.dir=unbroken");
    EXPECT_CODE(result, 0);
    return trace_of(folder_ / "unbroken");
  }
  std::vector<std::string> unfinished() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(checkpoints_))
      if (const std::string name = entry.path().filename();
          name.find(".partial") != std::string::npos)
        names.push_back(name);
    return names;
  }
  std::string latest() const { return read_small_file(checkpoints_ / "latest", 100); }

  // Where the output tells of a step, and of a save.
  static size_t line_of_step(const Result& result, int64_t wanted) {
    const std::vector<std::string> lines = lines_of(result.text);
    for (size_t i = 0; i < lines.size(); ++i) {
      int64_t step = 0;
      if (is_step_line(lines[i]) && std::istringstream(lines[i]) >> step && step == wanted)
        return i;
    }
    ADD_FAILURE() << "no line of step " << wanted << " in " << result.text;
    return 0;
  }
  static size_t line_of_save(const Result& result, const std::string& name) {
    const std::vector<std::string> lines = lines_of(result.text);
    for (size_t i = 0; i < lines.size(); ++i)
      if (lines[i].starts_with("saved ") && lines[i].find(name) != std::string::npos) return i;
    ADD_FAILURE() << "no line of the save of " << name << " in " << result.text;
    return 0;
  }

  // Each line of the table is followed by a warning, from the one that says that a save has failed
  // until a save succeeds. Returns how many there were.
  static int warned_lines(const Result& result) {
    const std::vector<std::string> lines = lines_of(result.text);
    int warned = 0;
    bool failed = false;
    for (size_t i = 0; i < lines.size(); ++i) {
      const bool warning = lines[i].find("warning: ") != std::string::npos;
      if (warning && lines[i].find("step-") != std::string::npos) failed = true;
      if (lines[i].starts_with("saved ")) failed = false;
      if (!failed || !is_step_line(lines[i])) continue;
      const bool followed =
          i + 1 < lines.size() && lines[i + 1].find("warning: ") != std::string::npos;
      EXPECT_TRUE(followed) << lines[i] << "\nin\n" << result.text;
      warned += followed ? 1 : 0;
    }
    return warned;
  }
};

}  // namespace tessera
