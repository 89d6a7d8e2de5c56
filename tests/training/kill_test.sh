#!/usr/bin/env bash
# Kills every rank of a run with SIGKILL, over and over, at moments spread over steps and saves (a save
# after every step), and starts it again, until it is done. Its metrics must equal an unbroken run's bit
# for bit: each start goes on from the newest whole checkpoint.
#   kill_test.sh TESSERA
set -euo pipefail
tessera=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export OMP_NUM_THREADS=1
arguments=(--quiet --oversubscribe --bind-to none -n 2)
((EUID != 0)) || arguments+=(--allow-run-as-root)

for ((i = 0; i < 4000; i++)); do echo "line $((i * 7 % 1000))"; done >"$folder/text"
"$tessera" data pack "$folder/text" --out "$folder/tokens"
cat >"$folder/config.yaml" <<EOF
run: {dir: $folder/unbroken, seed: 3}
model: {type: llama, hidden_size: 128, intermediate_size: 256, num_hidden_layers: 2, num_attention_heads: 4,
        num_key_value_heads: 4, vocab_size: 256}
parallel: {tp: 1}
data: {train: [$folder/tokens], seq_len: 64}
training: {steps: 24, global_batch_size: 4, micro_batch_size: 2, log_every: 0, log_samples: true}
schedule: {type: cosine, warmup_steps: 4}
checkpoint: {every: 1, keep: 2, resume: auto}
EOF

# What must be equal: everything but times and memory.
curve() { grep -o '"step":[0-9]*,"loss":[^,]*,"grad_norm":[^,]*,"lr":[^,]*\|"samples":.*' "$1/metrics.jsonl"; }

mpirun "${arguments[@]}" "$tessera" train "$folder/config.yaml" >"$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }

kills=0
for ((attempt = 0; ; attempt++)); do
  if ((attempt == 60)); then echo "not done after $attempt starts"; exit 1; fi
  mpirun "${arguments[@]}" "$tessera" train "$folder/config.yaml" --set "run.dir=$folder/broken" >"$folder/log" 2>&1 &
  job=$!
  # Moments from 0.45 s after the start on, spread over start-up, steps and saves; later and later, so that
  # a slow machine gets on as well.
  ms=$((450 + attempt * 37 % 500 + attempt * attempt))
  sleep "$((ms / 1000)).$(printf '%03d' $((ms % 1000)))"
  if pkill -KILL -P "$job"; then kills=$((kills + 1)); fi
  code=0
  wait "$job" || code=$?
  if ((code == 0)); then break; fi
  if grep -q '^error' "$folder/log"; then cat "$folder/log"; exit 1; fi
done
echo "killed $kills times"
((kills >= 1)) || { echo "the run was too quick to be killed"; exit 1; }
diff <(curve "$folder/unbroken") <(curve "$folder/broken")
[[ $(curve "$folder/broken" | grep -c '"loss"') == 24 ]] || { echo "steps are missing"; exit 1; }
