#include "cli/batch_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <regex>

#include "base/error.h"

namespace tessera {
namespace {

// A whole number from 1 to a million; 0 for anything else.
int count_of(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool good = error == std::errc() && end == text.data() + text.size();
  return good && value >= 1 && value <= 1000000 ? value : 0;
}

// Slurm reads "90" as minutes and "1:30" as minutes and seconds; whoever writes "2h" means neither.
void check_time(const std::string& time) {
  static const std::regex kTime(
      R"(\d+|\d+:[0-5]?\d|\d+:[0-5]?\d:[0-5]?\d|\d+-\d+|\d+-\d+:[0-5]?\d|\d+-\d+:[0-5]?\d:[0-5]?\d)");
  if (!std::regex_match(time, kTime))
    fail_user("launch",
              "--time: {}; must be a time of Slurm: minutes, hours:minutes:seconds, days-hours or "
              "days-hours:minutes:seconds, such as 1:00:00",
              time);
  if (time.find_first_not_of("0:-") == std::string::npos)
    fail_user("launch", "--time: {}; must be longer than nothing, such as 1:00:00", time);
}

void check_option(const std::string& option) {
  static const std::regex kOption(R"(--?[A-Za-z][^\n\r]*)");
  if (!std::regex_match(option, kOption))
    fail_user("launch",
              "--sbatch: {}; must be one option of sbatch with its value, such as "
              "--sbatch=--partition=gpu",
              option);
  // The script has said these already, and Slurm would take the last without a word.
  for (const char* own :
       {"--nodes", "-N", "--ntasks-per-node", "--cpus-per-task", "-c", "--gpus-per-node", "--time",
        "-t", "--signal", "--mem", "--requeue", "--no-requeue", "--open-mode"}) {
    const std::string name = own;
    if (option == name || option.starts_with(name + "=") || option.starts_with(name + " "))
      fail_user("launch", "--sbatch: {}; tessera launch sbatch sets {} itself", option, name);
  }
}

}  // namespace

NodeRange NodeRange::parse(const std::string& text) {
  const size_t dash = text.find('-');
  NodeRange range;
  range.fewest = count_of(std::string_view(text).substr(0, dash));
  range.most =
      dash == std::string::npos ? range.fewest : count_of(std::string_view(text).substr(dash + 1));
  if (range.fewest == 0 || range.most < range.fewest)
    fail_user("launch",
              "--nodes: {}; must be a number of nodes, such as 4, or a range, such as 2-4", text);
  return range;
}

std::string NodeRange::text() const {
  return fewest == most ? fmt::format("{}", fewest) : fmt::format("{}-{}", fewest, most);
}

std::string shell_word(const std::string& text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("._-/=:,+@%").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) return text;
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'')
      word += "'\\''";
    else
      word += c;
  }
  return word + "'";
}

std::string BatchScript::text() const {
  check_time(time);
  for (const std::string& option : options) check_option(option);
  std::string text = "#!/usr/bin/env bash\n# Written by `tessera launch sbatch`.\n";
  const auto add = [&](const std::string& option) { text += "#SBATCH " + option + "\n"; };
  add("--job-name=" + name);
  add("--nodes=" + nodes.text());
  add(fmt::format("--ntasks-per-node={}", ranks_per_node));
  add(fmt::format("--cpus-per-task={}", cpus_per_rank));
  if (gpus_per_node > 0) add(fmt::format("--gpus-per-node={}", gpus_per_node));
  if (memory_mib > 0) {
    if (!memory_reason.empty()) text += "# " + memory_reason + "\n";
    add(fmt::format("--mem={}M", memory_mib));
  }
  add("--time=" + time);
  add(fmt::format("--signal=B:USR1@{}", lead));
  add("--requeue");
  add("--open-mode=append");
  const bool has_output =
      std::any_of(options.begin(), options.end(), [](const std::string& option) {
        return option.starts_with("--output") || option.starts_with("-o");
      });
  if (!has_output) add("--output=" + name + "-%j.log");
  for (const std::string& option : options) add(option);
  text += "\n# A request to stop that comes while the rest is read is not lost.\n";
  text += "stop_asked=false\ntrap stop_asked=true USR1\n";
  text += "export TESSERA_BIN=${TESSERA_BIN:-" + shell_word(program) + "}\nset --";
  for (const std::string& argument : arguments) text += " " + shell_word(argument);
  text += "\n# shellcheck source=/dev/null\nsource " + shell_word(train_script) + "\n";
  return text;
}

int64_t rank_memory_mib(int64_t states, bool on_gpu) {
  constexpr int64_t kMib = int64_t{1} << 20;
  // The program with LibTorch and its libraries; a process with CUDA maps some GiB besides.
  const int64_t program = on_gpu ? 6144 : 1024;
  // A GPU's states pass through the host's memory on their way to a checkpoint. On a CPU
  // activations come on top, for which as much as the states is a guess.
  const int64_t data = on_gpu ? states : 2 * states;
  return program + (data + kMib - 1) / kMib;
}

}  // namespace tessera
