// The binary from outside: exit codes, help, and what reaches stdout and stderr.

#include "cli_testing.h"

namespace tessera {
namespace {

using testing::count;
using testing::kMinimal;
using testing::read_file;
using testing::Result;
using testing::run;
using testing::TempDir;

std::string mpirun(int ranks) {
  return "timeout 60 mpirun --allow-run-as-root --oversubscribe --bind-to none -n " +
         std::to_string(ranks);
}

const char* const kCommands[] = {"",
                                 "train",
                                 "checkpoint",
                                 "checkpoint list",
                                 "checkpoint inspect",
                                 "checkpoint verify",
                                 "checkpoint diff",
                                 "checkpoint consolidate",
                                 "checkpoint import",
                                 "checkpoint reshard",
                                 "checkpoint average",
                                 "data",
                                 "data pack",
                                 "config",
                                 "config check",
                                 "config show",
                                 "config keys",
                                 "launch",
                                 "launch sbatch",
                                 "doctor"};

TEST(Cli, HelpAndVersionEverywhere) {
  const TempDir dir;
  for (const std::string command : kCommands) {
    SCOPED_TRACE(command);
    const Result help = run(dir, command + " --help");
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_HAS(help.out, "Usage: tessera" + (command.empty() ? "" : " " + command));
    EXPECT_HAS(help.out, "--version");
    EXPECT_HAS(help.out, "Exit codes: 0 done; 1 failed; 2");
    EXPECT_EQ(help.err, "");
    const Result version = run(dir, command + " --version");
    EXPECT_EQ(version.exit_code, 0);
    EXPECT_EQ(version.out, "tessera 0.1.0\n");
    EXPECT_EQ(version.err, "");
  }
}

TEST(Cli, WrongCommandLinesExitWith2) {
  const TempDir dir;
  const struct {
    const char* arguments;
    const char* part;
    const char* hint;
  } cases[] = {
      {"", "subcommand is required", "Try `tessera --help`"},
      {"trian c.yaml", "unknown command trian; did you mean train? commands: train, checkpoint",
       "Try `tessera --help`"},
      {"train", "CONFIG is required", "Try `tessera train --help`"},
      {"train a.yaml b.yaml", "b.yaml", "Try `tessera train --help`"},
      {"train c.yaml --steps 5", "--steps", "Try `tessera train --help`"},
      {"train c.yaml --set", "--set", "Try `tessera train --help`"},
      {"checkpoint", "subcommand is required", "Try `tessera checkpoint --help`"},
      {"checkpoint inspct x", "unknown command inspct; did you mean inspect?", "checkpoint --help"},
      {"--steps 5", "subcommand is required", "Try `tessera --help`"},
      {"checkpoint consolidate step", "OUT_DIR is required", "checkpoint consolidate --help"},
      {"checkpoint consolidate a b --dtype fp8", "fp8", "checkpoint consolidate --help"},
      {"checkpoint consolidate a b --max-shard-size 5XB", "xb unit not recognized",
       "consolidate --help"},
      {"checkpoint list", "RUN is required", "checkpoint list --help"},
      {"checkpoint inspect", "STEP_DIR is required", "checkpoint inspect --help"},
      {"checkpoint inspect a --verify", "--verify", "checkpoint inspect --help"},
      {"checkpoint verify", "STEP_DIR is required", "checkpoint verify --help"},
      {"checkpoint verify a --threads 0", "--threads", "checkpoint verify --help"},
      {"checkpoint diff a", "B is required", "checkpoint diff --help"},
      {"checkpoint import hf", "STEP_DIR is required", "checkpoint import --help"},
      {"checkpoint reshard a b", "--mesh is required", "checkpoint reshard --help"},
      {"checkpoint average a b", "--out is required", "checkpoint average --help"},
      {"train c.yaml -n 2", "launch/run_local.sh CONFIG -n RANKS", "train --help"},
      {"data pack", "INPUT is required", "data pack --help"},
      {"data pack a.txt", "--out is required", "data pack --help"},
      {"data pack a.txt --out p --valid-fraction 2", "valid-fraction", "data pack --help"},
      {"config check c.yaml --ranks 0", "--ranks", "config check --help"},
      {"config check c.yaml --ranks-per-node 0", "--ranks-per-node", "config check --help"},
      {"launch sbatch c.yaml", "--nodes is required", "launch sbatch --help"},
      {"launch sbatch --nodes 2", "CONFIG is required", "launch sbatch --help"},
      {"launch sbatch c.yaml --nodes 2 --lead 5", "--lead", "launch sbatch --help"},
      {"doctor somewhere", "somewhere", "doctor --help"},
      {"doctor --set parallel.tp=2", "--config", "doctor --help"},
      {"config check c.yaml --ranks 2 --device-memory 80XB", "--device-memory",
       "config check --help"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.arguments);
    const Result result = run(dir, c.arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err.substr(0, 7), "error: ");
    EXPECT_HAS(result.err, c.part);
    EXPECT_HAS(result.err, c.hint);
  }
}

TEST(Cli, ConfigCommands) {
  const TempDir dir;
  dir.write("c.yaml", kMinimal);
  const Result check = run(dir, "config check c.yaml --no-data --ranks 4 --set parallel.tp=2");
  EXPECT_EQ(check.exit_code, 0) << check.err;
  EXPECT_HAS(check.out,
             "c.yaml: ok, dp_replicate 1 x dp_shard 2 x tp 2\nmemory of rank 0: master weights ");
  EXPECT_EQ(run(dir, "config check c.yaml --no-data").out, "c.yaml: ok\n");
  // An option before CONFIG does not take it for another value.
  const Result show = run(dir, "config show --set training.steps=5 --set=optimizer.lr=0.5 c.yaml");
  EXPECT_EQ(show.exit_code, 0) << show.err;
  EXPECT_HAS(show.out, "\n  steps: 5\n");
  EXPECT_HAS(show.out, "\n  lr: 0.5\n");
  dir.write("resolved.yaml", show.out);
  EXPECT_EQ(run(dir, "config show resolved.yaml").out, show.out);
  EXPECT_HAS(run(dir, "config show c.yaml --set 'data.train=[a b, c]'").out, "[\"a b\", c]");
  const Result mesh = run(dir, "config check c.yaml --no-data --ranks 6 --set parallel.tp=4");
  EXPECT_EQ(mesh.exit_code, 2);
  EXPECT_EQ(mesh.out, "");
  EXPECT_HAS(mesh.err, "would work with 6 ranks: 1, 2");
  EXPECT_HAS(run(dir, "config keys").out, "training.steps");
  EXPECT_HAS(run(dir, "config keys --markdown").out, "| `steps` |");
}

// What only compute nodes can run is found wrong anywhere.
TEST(Cli, ConfigCheckLooksAtDataNodesAndMemory) {
  const TempDir dir;
  std::string large = kMinimal;
  for (const auto& [from, to] :
       {std::pair<std::string, std::string>{"hidden_size: 64", "hidden_size: 5120"},
        {"intermediate_size: 192", "intermediate_size: 13824"},
        {"num_hidden_layers: 2", "num_hidden_layers: 40"},
        {"num_attention_heads: 4", "num_attention_heads: 40"},
        {"vocab_size: 256", "vocab_size: 32000"}})
    large.replace(large.find(from), from.size(), to);
  dir.write("c.yaml", large + "parallel: {zero: 0, tp: 8}\ncheckpoint: {init_from: no/step}\n");
  Result result = run(dir, "config check c.yaml --ranks 40 --ranks-per-node 4 --device-memory 8GB");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_HAS(result.err, "error: [config] 4 mistakes:\n");
  EXPECT_HAS(result.err, "  c.yaml:11:11: data.train[0]: ");
  EXPECT_HAS(result.err, "  c.yaml:16:18: memory: rank 0 would hold ");
  EXPECT_HAS(result.err, "the cheapest first: parallel.zero: ");
  EXPECT_HAS(result.err, "  c.yaml:16:25: parallel.tp: 8; with 4 ranks a node");
  EXPECT_HAS(result.err, "  c.yaml:17:25: ");
  EXPECT_HAS(result.err, "no/step");
  result = run(dir,
               "config check c.yaml --ranks 40 --ranks-per-node 8 --device-memory 80GB --no-data "
               "--set parallel.zero=3 --set parallel.tp=8 --set checkpoint.init_from=none");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_HAS(result.out, "c.yaml: ok, dp_replicate 1 x dp_shard 5 x tp 8\nmemory of rank 0: ");
  EXPECT_HAS(result.out, "activations not counted; ");
  EXPECT_HAS(result.out, " are left for them");
  // Patterns that fit nothing need no mesh to be found.
  result = run(dir, "config check c.yaml --no-data --set 'optimizer.groups=[{params: [nothing]}]'");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_HAS(result.err, "nothing");
  EXPECT_HAS(run(dir, "config check c.yaml --device-memory 80GB").err, "needs --ranks");
}

TEST(Cli, OutputThatCannotBeWrittenIsAFailure) {
  const TempDir dir;
  dir.write("c.yaml", kMinimal);
  const Result result = run(dir, "config show c.yaml >/dev/full 2>err.txt #");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_HAS(result.err, "the output could not be written: No space left on device");
}

TEST(Cli, WrongConfigurationsExitWith2) {
  const TempDir dir;
  dir.write("c.yaml", std::string(kMinimal) + "optimizer: {lerning_rate: 1e-3}\n");
  dir.write("empty.yaml", "");
  dir.write("good.yaml", kMinimal);
  const struct {
    const char* arguments;
    const char* part;
  } cases[] = {
      {"train c.yaml", "error: [config] c.yaml:16:13: optimizer.lerning_rate: unknown key"},
      {"config check c.yaml", "error: [config] c.yaml:16:13: optimizer.lerning_rate"},
      {"config show c.yaml", "error: [config] c.yaml:16:13: optimizer.lerning_rate"},
      {"train empty.yaml", "error: [config] empty.yaml:1:1: empty configuration"},
      {"train none.yaml", "error: [config] none.yaml: cannot be opened"},
      {"config check good.yaml --set parallel.tp=3",
       "error: [config] --set parallel.tp: parallel.tp: 3; must divide"},
      {"train good.yaml --set parallel.tp=2",
       "error: [config] --set parallel.tp: parallel: dp_replicate 1 x tp 2 = 2 must divide the "
       "number of ranks, which is 1"},
      {"train good.yaml --set training.steps=1e3", "error: [config] --set training.steps: "},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.arguments);
    const Result result = run(dir, c.arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_HAS(result.err, c.part);
    EXPECT_EQ(count(result.err, "\n"), 1) << result.err;
    // Ranks meet by a file of the watchdog in the folder of logs; nothing else is made before that.
    for (const auto& made : std::filesystem::recursive_directory_iterator(dir.path())) {
      const std::string name = made.path().filename();
      EXPECT_TRUE(name != "checkpoints" && name != "starts" && name != ".lock") << made.path();
    }
  }
}

TEST(Cli, WrongConfigurationsAreToldOnceByAllRanks) {
  const TempDir dir;
  dir.write("tab.yaml", "a:\n\tb: 1");
  dir.write("good.yaml", kMinimal);
  const struct {
    const char* arguments;
    std::vector<std::string> parts;
  } cases[] = {
      {"train tab.yaml", {"error: [config] tab.yaml:2:3: not valid YAML"}},
      {"train good.yaml --set parallel.tp=2 --set parallel.dp_shard=3",
       {"dp_shard 3", "tp 2", "but 4 are started"}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.arguments);
    const Result result = run(dir, c.arguments, mpirun(4));
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_EQ(count(result.err, "error: "), 1) << result.err;
    for (const std::string& part : c.parts) EXPECT_HAS(result.err, part);
  }
}

TEST(Cli, ARankThatFailsAloneIsNamed) {
  const TempDir dir;
  dir.write("good.yaml", kMinimal);
  // Only rank 1's folder lacks the file; the other rank waits for nothing and reports nothing
  // wrong.
  dir.write("alone.sh",
            "#!/bin/sh\nif [ \"$OMPI_COMM_WORLD_RANK\" = 1 ]; then cd /; else sleep 30; fi\n"
            "exec \"$@\"\n");
  const Result result = run(dir, "config check good.yaml", mpirun(2) + " sh alone.sh");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(count(result.err, "error: "), 1) << result.err;
  EXPECT_HAS(result.err, "error: rank 1 (");
  EXPECT_HAS(result.err, "): [config] good.yaml: cannot be opened");
}

// Not every launcher ends the other ranks by a signal when one fails (srun does not).
TEST(Cli, WhatIsWrongBeforeMpiIsToldOnceWithoutALaunchersSignal) {
  const TempDir dir;
  dir.write("good.yaml", kMinimal);
  dir.write("deaf.sh", "#!/bin/sh\ntrap '' TERM\nexec \"$@\"\n");
  dir.write("alone.sh",
            "#!/bin/sh\ntrap '' TERM\nif [ \"$OMPI_COMM_WORLD_RANK\" = 1 ]; then cd /; fi\n"
            "exec \"$@\"\n");
  const struct {
    const char* script;
    const char* arguments;
    const char* part;
  } cases[] = {
      {"deaf.sh", "train good.yaml --set optimizer.lerning_rate=1", "error: [config] "},
      {"deaf.sh", "train good.yaml --sett a.b=1", "error: "},
      {"alone.sh", "train good.yaml", "error: rank 1 ("},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.arguments);
    const Result result = run(dir, c.arguments, mpirun(2) + " sh " + c.script);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_EQ(count(result.err, "error: "), 1) << result.err;
    EXPECT_HAS(result.err, c.part);
    // Ranks meet by a file of the watchdog in the folder of logs; nothing else is made before that.
    for (const auto& made : std::filesystem::recursive_directory_iterator(dir.path())) {
      const std::string name = made.path().filename();
      EXPECT_TRUE(name != "checkpoints" && name != "starts" && name != ".lock") << made.path();
    }
  }
}

TEST(Cli, WhatTheEnvironmentAsksForIsChecked) {
  const TempDir dir;
  dir.write("good.yaml", kMinimal);
  const struct {
    const char* variable;
    const char* message;
  } cases[] = {
      {"TESSERA_CPU=avx",
       "error: [kernels] TESSERA_CPU is 'avx'; it must be one of avx512, avx2, sse4, scalar"},
      {"OMP_NUM_THREADS=8x",
       "error: [threads] OMP_NUM_THREADS is '8x'; it must be a number of threads from 1 to 1024"},
      {"OMP_NUM_THREADS=99999", "error: [threads] OMP_NUM_THREADS is '99999'"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.variable);
    for (const char* command :
         {"train good.yaml", "config check good.yaml", "checkpoint consolidate a b"}) {
      const Result result = run(dir, command, c.variable);
      EXPECT_EQ(result.exit_code, 2);
      EXPECT_EQ(result.out, "");
      EXPECT_HAS(result.err, c.message);
    }
    EXPECT_EQ(run(dir, "--help", c.variable).exit_code, 0);
  }
}

// A training run whose limits leave no room for its threads: 7 stacks of 16 GiB in 64 GiB.
TEST(Cli, ThreadsThatCannotBeMadeAreAFailure) {
  const TempDir dir;
  dir.write("text.txt", std::string(1000, 'x'));
  ASSERT_EQ(run(dir, "data pack text.txt --out text").exit_code, 0);
  dir.write("c.yaml", R"(
run: {dir: run}
model: {type: llama, hidden_size: 16, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2,
        vocab_size: 256}
data: {train: [text], seq_len: 8}
training: {steps: 2, global_batch_size: 2}
)");
  const std::string limits =
      R"(bash -c 'ulimit -s 16777216 -v 67108864; exec timeout 60 "$0" "$@"')";
  const Result failed = run(dir, "train c.yaml --set run.threads=8", limits);
  EXPECT_EQ(failed.exit_code, 1) << failed.err;
  EXPECT_HAS(failed.err, "error: [threads] cannot make a thread for computation (run.threads): ");
  EXPECT_HAS(failed.err, "address space 67108864 KiB (ulimit -v)");
  const Result result =
      run(dir, "train c.yaml --set run.threads=2", "TESSERA_CPU=scalar " + limits);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_HAS(
      result.out,
      " parameters on 1 rank (dp_replicate 1 x dp_shard 1 x tp 1), zero 3, fp32, scalar kernels\n");
}

TEST(Cli, SlurmTasksWithoutMpiAreRefused) {
  const TempDir dir;
  dir.write("good.yaml", kMinimal);
  const Result result =
      run(dir, "train good.yaml", "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=1 timeout 60");
  EXPECT_NE(result.exit_code, 0);
  EXPECT_HAS(result.err, "--mpi=pmix");
}

// The script for a configuration; --submit hands the same to sbatch.
TEST(Cli, LaunchSbatch) {
  const TempDir dir;
  dir.write("c.yaml", kMinimal);
  const std::string command =
      "launch sbatch c.yaml --set parallel.tp=2 --nodes 2-3 --time 1:30:00 ";
  const Result script = run(dir, command + "--sbatch=--partition=long");
  EXPECT_EQ(script.exit_code, 0) << script.err;
  for (const char* line :
       {"#SBATCH --nodes=2-3", "#SBATCH --ntasks-per-node=2", "#SBATCH --time=1:30:00",
        "#SBATCH --signal=B:USR1@120", "#SBATCH --partition=long",
        "#SBATCH --mem=", "set -- c.yaml --set parallel.tp=2", "source /"})
    EXPECT_HAS(script.out, std::string("\n") + line);
  EXPECT_HAS(script.out, "/launch/train.sbatch\n");
  dir.write("script", script.out);
  EXPECT_EQ(std::system(("bash -n '" + (dir.path() / "script").string() + "'").c_str()), 0);
  // A tp group that would straddle nodes, a mesh that fits only some numbers of nodes, a wrong
  // time.
  const struct {
    const char* arguments;
    const char* part;
  } wrong[] = {{"--nodes 2 --ranks-per-node 3", "--ranks-per-node: 3; with parallel.tp: 2"},
               {"--nodes 1-2 --set parallel.dp_shard=1", "parallel"},
               {"--nodes 2 --time 2h", "--time: 2h; must be a time of Slurm"},
               {"--nodes none", "--nodes: none; must be"},
               {"--nodes 2 --gpus-per-node 4", "--gpus-per-node: 4; device: cpu uses none"}};
  for (const auto& w : wrong) {
    const Result result =
        run(dir, std::string("launch sbatch c.yaml --set parallel.tp=2 ") + w.arguments);
    EXPECT_EQ(result.exit_code, 2) << w.arguments;
    EXPECT_HAS(result.err, w.part);
    EXPECT_EQ(result.out, "");
  }
  dir.write("sbatch", "#!/bin/sh\ncat >submitted\necho Submitted batch job 7\n");
  std::filesystem::permissions(dir.path() / "sbatch", std::filesystem::perms::owner_all);
  const Result submitted = run(dir, command + "--sbatch=--partition=long --submit", "PATH=.:$PATH");
  EXPECT_EQ(submitted.exit_code, 0) << submitted.err;
  EXPECT_EQ(submitted.out, "Submitted batch job 7\n");
  EXPECT_EQ(read_file(dir.path() / "submitted"), script.out);
  dir.write("sbatch", "#!/bin/sh\ncat >/dev/null\nexit 1\n");
  const Result refused = run(dir, command + "--submit", "PATH=.:$PATH");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_HAS(refused.err, "sbatch refused the script with exit code 1");
}

TEST(Cli, DataPack) {
  const TempDir dir;
  dir.write("a.txt", "hello\nworld\n");
  const Result result = run(dir, "data pack a.txt --out p --per-line");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "wrote p.bin and .idx: 2 documents, 12 tokens\n");
  EXPECT_EQ(read_file(dir.path() / "p.bin"), "hello\nworld\n");
  const Result missing = run(dir, "data pack none.txt --out q");
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_HAS(missing.err, "none.txt");
}

// Known faults: a pack over an earlier one left its validation data; binary files were packed
// without a word.
TEST(Cli, DataPackRefuses) {
  const TempDir dir;
  dir.write("a.txt", "hello\nworld\n");
  dir.write("b.jsonl", "{\"text\": \"hello\"}\n");
  EXPECT_EQ(run(dir, "data pack a.txt --out p --valid-fraction 0.5").exit_code, 0);
  const Result again = run(dir, "data pack a.txt --out p");
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_HAS(again.err, "error: [data] p.bin, p.idx, p-valid.bin, p-valid.idx are there already");
  const Result forced = run(dir, "data pack a.txt --out p --force");
  EXPECT_EQ(forced.exit_code, 0) << forced.err;
  EXPECT_HAS(forced.out,
             "12 tokens\nremoved p-valid.bin of the earlier pack\nremoved p-valid.idx of the");
  const Result json = run(dir, "data pack a.txt b.jsonl --out q");
  EXPECT_EQ(json.exit_code, 2);
  EXPECT_HAS(json.err, "error: [data] b.jsonl: by its name it holds JSON");
  EXPECT_FALSE(std::filesystem::exists(dir.path() / "q.bin"));
  EXPECT_EQ(run(dir, "data pack b.jsonl --out q --bytes").exit_code, 0);
}

// What training would refuse is refused before the weights are copied.
TEST(Cli, ImportRefusesAnotherModel) {
  const TempDir dir;
  const std::string config =
      R"("model_type": "llama", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, )"
      R"("num_attention_heads": 2, "vocab_size": 8, "rms_norm_eps": 1e-5)";
  const auto import_with = [&](const std::string& more) {
    std::filesystem::create_directories(dir.path() / "hf");
    std::ofstream(dir.path() / "hf/config.json") << "{" << config << more << "}";
    const std::string header =
        R"({"model.norm.weight": {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]}})";
    std::ofstream file(dir.path() / "hf/model.safetensors", std::ios::binary);
    const uint64_t size = header.size();
    file.write(reinterpret_cast<const char*>(&size), 8);
    file << header << std::string(32, '\0');
    file.close();
    return run(dir, "checkpoint import hf step");
  };
  Result result = import_with(R"(, "rope_scaling": {"rope_type": "llama3", "factor": 8.0})");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_HAS(result.err, "rope_scaling");
  // What training would refuse is refused before anything is copied.
  result = import_with(R"(, "head_dim": 3)");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_HAS(result.err, "model.head_dim: 3; heads are rotated in pairs");
  result = import_with(R"(, "initializer_range": -1)");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_HAS(result.err, "model.initializer_range: -1");
  result = import_with("");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_HAS(result.err, "11 missing: model.embed_tokens.weight");
  // A run that would start from the folder itself is told so by the check of its configuration.
  dir.write("c.yaml", kMinimal);
  const std::string from_hf =
      "config check c.yaml --set 'model={config: hf/config.json}' --set checkpoint.init_from=hf";
  result = run(dir, from_hf);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_HAS(result.err, "11 missing: model.embed_tokens.weight");
  EXPECT_FALSE(std::filesystem::exists(dir.path() / "step"));
  std::filesystem::rename(dir.path() / "hf/model.safetensors",
                          dir.path() / "hf/model-00001-of-00002.safetensors");
  result = run(dir, "checkpoint import hf step");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_HAS(result.err, "hf/model-00002-of-00002.safetensors is missing");
  EXPECT_FALSE(std::filesystem::exists(dir.path() / "step"));
}

TEST(Cli, CheckpointErrorsExitWith2) {
  const TempDir dir;
  for (const std::string arguments :
       {"checkpoint list none", "checkpoint inspect none", "checkpoint verify none",
        "checkpoint diff none none", "checkpoint consolidate none out",
        "checkpoint import none out", "checkpoint reshard none out --mesh 1x1x1",
        "checkpoint average none none --out out"}) {
    SCOPED_TRACE(arguments);
    const Result result = run(dir, arguments);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_EQ(result.err.substr(0, 8), "error: [");
    EXPECT_HAS(result.err, "none");
    EXPECT_FALSE(std::filesystem::exists(dir.path() / "out"));
  }
  dir.write("manifest.json", "{}");
  for (const char* name : {"step-00000002", "step-00000010"})
    std::filesystem::create_directories(dir.path() / "run/checkpoints" / name);
  std::filesystem::rename(dir.path() / "manifest.json",
                          dir.path() / "run/checkpoints/step-00000010/manifest.json");
  dir.write("latest", "step-00000010");
  std::filesystem::rename(dir.path() / "latest", dir.path() / "run/checkpoints/latest");
  const Result file = run(dir, "checkpoint inspect run/checkpoints/latest");
  EXPECT_EQ(file.exit_code, 2) << file.err;
  EXPECT_HAS(file.err, "it is a file, and a step folder is wanted, such as run/checkpoints/step-");
  const Result step = run(dir, "checkpoint import run/checkpoints/step-00000010 out");
  EXPECT_EQ(step.exit_code, 2) << step.err;
  EXPECT_HAS(step.err, "without an import");
  std::filesystem::create_directories(dir.path() / "hf");
  std::ofstream(dir.path() / "hf/config.json") << "{}";
  EXPECT_HAS(run(dir, "checkpoint consolidate hf out").err, "import makes a step folder of it");
  for (const std::string arguments :
       {"checkpoint inspect run", "checkpoint inspect run/checkpoints", "checkpoint verify run",
        "checkpoint diff run run", "checkpoint consolidate run out",
        "checkpoint reshard run out --mesh 1x1x1", "checkpoint average run run --out out"}) {
    SCOPED_TRACE(arguments);
    const Result result = run(dir, arguments);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_HAS(result.err, "the newest is run/checkpoints/step-00000010");
  }
  EXPECT_HAS(run(dir, "checkpoint consolidate a b --max-shard-size 0").err, "--max-shard-size: 0");
}

}  // namespace
}  // namespace tessera
