# Sourced by the tests of this folder that train for real; not run. Makes $work with a tiny configuration in
# it, $work/config.yaml, and the functions that look at its runs. $tessera is the program.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # what the sourcing script sets and uses

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 TESSERA_BIN=$tessera
failures=0

fail() {
  printf 'FAILED: %s\n' "$*"
  failures=$((failures + 1))
}

for ((i = 0; i < 4000; i++)); do echo "line $((i * 7 % 1000))"; done >"$work/text"
"$tessera" data pack "$work/text" --out "$work/tokens" >/dev/null
head -n 200 "$work/text" >"$work/valid.text"
"$tessera" data pack "$work/valid.text" --out "$work/valid" >/dev/null

# tiny_config STEPS EVERY [BATCHES]: a save and a validation each EVERY steps.
tiny_config() {
  cat <<YAML
run: {dir: $work/run, seed: 3}
model: {type: llama, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1, num_attention_heads: 2,
        num_key_value_heads: 2, vocab_size: 256}
parallel: {tp: 1}
data: {train: [$work/tokens], valid: [$work/valid], seq_len: 32}
training: {steps: $1, global_batch_size: 4, micro_batch_size: 2, log_every: 0, log_samples: true}
schedule: {type: cosine, warmup_steps: 1}
eval: {every: $2, batches: ${3:-2}}
checkpoint: {every: $2, keep: 2, resume: auto}
YAML
}

# What must be equal between a broken run and a whole one: everything but times and memory.
curve() {
  grep -o '"step":[0-9]*,"loss":[^,]*,"grad_norm":[^,]*,"lr":[^,]*\|"samples":.*\|^.*"eval_loss".*' \
    "$1/metrics.jsonl"
}
last_line_step() { tail -n 1 "$1/metrics.jsonl" 2>/dev/null | sed -n 's/^{"step":\([0-9]*\).*/\1/p'; }
# The newest committed step; 0 if there is none.
saved_step() {
  local newest=0 manifest
  for manifest in "$1"/checkpoints/step-*[0-9]/manifest.json; do
    [[ -e $manifest ]] || continue
    manifest=${manifest%/manifest.json}
    newest=$((10#${manifest##*step-}))
  done
  echo "$newest"
}

# until_true SECONDS COMMAND ...: polls; false if it did not become true.
until_true() {
  local i limit=$(($1 * 100))
  shift
  for ((i = 0; i < limit; i++)); do "$@" && return; sleep 0.01; done
  return 1
}
