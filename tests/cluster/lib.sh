# What the cases on the virtual cluster have in common; sourced by run.sh and fifty.sh, not run.
# shellcheck shell=bash
# shellcheck disable=SC2154  # $partition and $variables, which the cases set

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cluster=$root/tests/cluster/cluster.sh
export CLUSTER_DIR=${CLUSTER_DIR:-/var/tmp/tessera-cluster} CLUSTER_USER=${CLUSTER_USER:-tessera-test}
work=$CLUSTER_DIR/work
program=${TESSERA_BIN:-$root/build/release/tessera}

# folders_for_nodes: what ranks need besides CLUSTER_DIR: the repository, and the libraries of the program.
folders_for_nodes() {
  {
    printf '%s\n' "$root" "$(dirname "$program")"
    readlink -f "$root/deps"
    ldd "$program" | awk '$3 ~ "^/tmp/" {print $3}' | sed 's|/lib[^/]*$||; s|/libtorch/.*|/libtorch|'
  } | sort -u | while IFS= read -r folder; do [[ ! -d $folder ]] || realpath "$folder"; done | sort -u
}

# prepare STEPS: the text and the configuration of all jobs, of STEPS steps with ten saves.
prepare() {
  local steps=$1
  rm -rf "$work"
  mkdir -p "$work/data"
  for ((i = 0; i < 20000; i++)); do echo "line $((i * 7 % 1000)) of $i"; done >"$work/data/text.txt"
  cat >"$work/tiny.yaml" <<YAML
run: {dir: runs/none, seed: 42}
model: {type: llama, hidden_size: 64, intermediate_size: 192, num_hidden_layers: 2, num_attention_heads: 4,
        num_key_value_heads: 4, vocab_size: 256}
parallel: {tp: 2, dp_shard: auto}
data: {train: [data/text], valid: [data/text-valid], seq_len: 64}
training: {steps: $steps, global_batch_size: 8, micro_batch_size: 2, log_every: 10}
optimizer: {lr: 1.0e-3}
schedule: {type: cosine, warmup_steps: 20, min_lr_ratio: 0.1}
eval: {every: $((steps / 10)), batches: 2}
checkpoint: {every: $((steps / 10)), keep: 3}
communication: {timeout: 20, file_timeout: 60}
YAML
  chown -R "$CLUSTER_USER": "$work"
  in_work "$program" data pack data/text.txt --out data/text --valid-fraction 0.05 >/dev/null
}

# in_work COMMAND ...: as the user of the jobs, on the controller, in the folder of the runs.
in_work() { "$cluster" user env -C "$work" "$@"; }

# submit RUN "OPTIONS OF SBATCH" [ARGUMENT OF TRAIN ...]: prints the job's number. The job has 2 nodes of 2 ranks in
# $partition unless the options say otherwise. Variables for it: $variables, as NAME=VALUE words.
submit() {
  local run=$1 options=$2
  shift 2
  # shellcheck disable=SC2086  # words
  in_work env "TESSERA_BIN=$program" TESSERA_RESTART_PAUSE=2 ${variables:-} sbatch --parsable -p "$partition" --nodes=2 \
    --ntasks-per-node=2 --cpus-per-task=1 --time=30 --job-name="$run" --output="$run.log" $options \
    "$root/launch/train.sbatch" tiny.yaml --set "run.dir=runs/$run" "$@"
}

# job_field JOB NAME: of what scontrol says of a job.
job_field() { "$cluster" admin scontrol -o show job "$1" 2>/dev/null | tr ' ' '\n' | sed -n "s/^$2=//p" | head -n 1; }
ended() { [[ $(job_field "$1" JobState) =~ ^(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|OUT_OF_MEMORY|BOOT_FAIL|DEADLINE)$ ]]; }
running() { [[ $(job_field "$1" JobState) == RUNNING ]]; }
in_turn() { running "$1" && (($(job_field "$1" Restarts) >= $2)); }
out_of_turn() { ! running "$1"; }

# until_true SECONDS COMMAND ...: polls; false if it did not become true.
until_true() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < end)) || return 1
    sleep 0.3
  done
}

last_step() { sed -n 's/^{"step":\([0-9]*\),"loss".*/\1/p' "$work/runs/$1/metrics.jsonl" 2>/dev/null | tail -n 1 | grep . || echo 0; }
saved_step() {
  local manifest newest=0 step
  for manifest in "$work/runs/$1"/checkpoints/step-*[0-9]/manifest.json; do
    [[ -e $manifest ]] || continue
    step=${manifest%/manifest.json} step=${step##*step-}
    newest=$((10#$step))
  done
  echo "$newest"
}
reached() { (($(last_step "$1") >= $2)); }
saved() { (($(saved_step "$1") >= $2)); }

# What must be equal between a broken run and an unbroken one: everything but times and memory.
curve() {
  grep -o '"step":[0-9]*,"loss":[^,]*,"grad_norm":[^,]*,"lr":[^,]*\|^.*"eval_loss".*' "$work/runs/$1/metrics.jsonl" 2>/dev/null
}

# ranks JOB: 'RANK NODE PID' of each rank of a job, the PID as seen from outside.
ranks() {
  local pid
  for pid in $(pgrep -x tessera); do
    tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | awk -F= -v pid="$pid" -v job="$1" '
      {value[$1] = $2}
      END {if (value["SLURM_JOB_ID"] == job && value["SLURM_STEP_ID"] != "" && value["PMIX_RANK"] != "")
        print value["SLURM_PROCID"], value["SLURMD_NODENAME"], pid}'
  done | sort -n
}
pid_of_rank() { ranks "$1" | awk -v rank="$2" '$1 == rank {print $3; exit}'; }
no_ranks() { [[ -z $(ranks "$1") ]]; }
