#!/usr/bin/env bash
# Ends runs by SIGKILL over and over, at random moments of start-up, steps and saves (one after every step, most of them
# beside training): one rank, all ranks, or mpirun itself. Each start goes on from the newest checkpoint that was
# committed, and in the end the metrics are an unbroken run's bit for bit.
#   kill_test.sh TESSERA [--kills N] [--seed S]
set -euo pipefail
# shellcheck source=tests/support/kills.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/kills.sh"
wanted=20 trial=preparation
begin_kills "$@"
readonly steps=40
# In turn. Each is a run on 4 ranks: what it shards and what it copies.
meshes=("dp_shard: 2, tp: 2, zero: 3" "dp_replicate: 2, dp_shard: 2, tp: 1")

pack_text
for mesh in "${!meshes[@]}"; do
  cat >"$folder/$mesh.yaml" <<YAML
run: {dir: $folder/unbroken-$mesh, seed: 3}
model: {type: llama, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 2, num_attention_heads: 4,
        num_key_value_heads: 4, vocab_size: 256}
parallel: {${meshes[mesh]}}
data: {train: [$folder/tokens], seq_len: 32}
training: {steps: $steps, global_batch_size: 4, micro_batch_size: 1, log_every: 0, log_samples: true}
schedule: {type: cosine, warmup_steps: 4}
checkpoint: {every: 1, keep: 2, resume: auto}
YAML
done

# What must be equal: everything but times and memory.
curve() { grep -o '"step":[0-9]*,"loss":[^,]*,"grad_norm":[^,]*,"lr":[^,]*\|"samples":.*' "$1/metrics.jsonl"; }
# saved: the newest committed step, 0 if there is none.
find_saved() {
  local manifest
  saved=0
  for manifest in "$run"/checkpoints/step-*[0-9]/manifest.json; do
    [[ -e $manifest ]] || continue
    manifest=${manifest%/manifest.json}
    saved=$((10#${manifest##*step-}))
  done
}
gone() {  # PID ...: whether none of them is left; one that has ended may not have been waited for yet
  local pid stat
  for pid; do
    { read -r stat <"/proc/$pid/stat"; } 2>/dev/null || continue
    [[ ${stat##*) } == [ZX]* ]] || return 1
  done
}
saved_one() { find_saved; ((saved > committed)); }
saving() { compgen -G "$run/checkpoints/*.partial*" >/dev/null; }
until_true() {  # COMMAND: until it is, or the job has ended by itself
  local deadline=$((SECONDS + 120))
  until "$1" || gone "$job"; do
    ((SECONDS < deadline)) || die "not $1 in 120 s"
    pause 3
  done
}
# Until a random moment: of the whole run with its start-up, some time after a step of this start was saved, or in a
# save.
until_moment() {
  if [[ $moment == any ]]; then pause $((RANDOM % run_ms)); return; fi
  until_true saved_one
  if [[ $moment == step ]]; then pause $((RANDOM % 100)); return; fi
  until_true saving
  pause $((RANDOM % 10))
}
# Nothing of the job may live on: of a killed rank's job mpirun ends the others, and without mpirun they end themselves.
# mpirun itself does not always: Open MPI 4.1 waits for ever if its ranks are killed while they connect to it.
until_all_gone() {
  local begun=$SECONDS
  until gone "$job" "${ranks[@]}"; do
    ((SECONDS < begun + 60)) || die "60 s after the SIGKILL there is still one of $job (mpirun), ${ranks[*]}"
    if ((SECONDS > begun + 20)) && [[ $victim == all ]] && gone "${ranks[@]}"; then
      kill -KILL "$job"
      stuck_mpirun=$((stuck_mpirun + 1))
    fi
    pause 5
  done
}
find_ranks() {
  ranks=()
  until ((${#ranks[@]} == 4)) || gone "$job"; do
    pause 10
    mapfile -t ranks < <(pgrep -P "$job")
  done
}
kill_it() {
  ((${#ranks[@]} == 4)) || return 1  # it has ended before
  case $victim in
    rank) kill -KILL "${ranks[RANDOM % ${#ranks[@]}]}" ;;
    all) kill -KILL "${ranks[@]}" ;;
    mpirun) kill -KILL "$job" ;;
  esac 2>/dev/null
}

declare -A victims=() lost_steps=()
kills=0 in_start=0 in_save=0 runs=0 stuck_mpirun=0
# The steps that were done and must be done again: never one that was committed, and no more than were on their way to
# the disk.
count_lost() {
  local last
  last=$(sed -n 's/^{"step":\([0-9]*\),"loss".*/\1/p' "$run/metrics.jsonl" | tail -n 1)
  local lost=$((${last:-0} > saved ? last - saved : 0))
  ((lost <= most_lost)) || die "step $last was done, but the newest checkpoint is of step $saved"
  lost_steps[$lost]=$((${lost_steps[$lost]:-0} + 1))
}

# One start of the run, which is killed if `victim` names what. True: the run is done.
start() {
  local committed code=0
  find_saved
  committed=$saved
  : >"$folder/started"
  "${launcher[@]}" "$tessera" train "$folder/$mesh.yaml" --set "run.dir=$run" --set checkpoint.async=$async \
    >"$folder/log" 2>&1 &
  job=$!
  killed=false
  if [[ $victim ]]; then
    find_ranks
    until_moment
    if kill_it; then
      killed=true
      until_all_gone
    fi
  fi
  wait "$job" 2>/dev/null || code=$?
  ((code != 0)) || return 0
  $killed || die "ended with exit code $code"
  find_saved
  if compgen -G "$run/checkpoints/*.broken" >/dev/null; then die "a committed checkpoint was not whole"; fi
  ((saved >= committed)) || die "step $committed was committed, now the newest is $saved"
  local resumed
  resumed=$(sed -n 's/.*resuming from .* at step \([0-9]*\)$/\1/p' "$folder/log")
  [[ ${resumed:-$committed} == "$committed" ]] || die "went on from step $resumed, but $committed was committed"
  kills=$((kills + 1))
  victims[$victim]=$((${victims[$victim]:-0} + 1))
  if [[ $run/metrics.jsonl -nt $folder/started ]]; then count_lost; else in_start=$((in_start + 1)); fi
  if saving; then in_save=$((in_save + 1)); fi
  return 1
}

# Unbroken, which also tells how long a run takes.
saved=0 victim='' async=false
for mesh in "${!meshes[@]}"; do
  run=$folder/unbroken-$mesh trial="the unbroken run ${meshes[mesh]}"
  begun=${EPOCHREALTIME/./}
  start || die "was killed"
  run_ms=$(((${EPOCHREALTIME/./} - begun) / 1000))
  [[ $(curve "$run" | grep -c '"loss"') == "$steps" ]] || die "steps are missing"
done

begun=$SECONDS
all_victims=(rank all mpirun) moments=(any step save save)
while ((kills < wanted)); do
  mesh=$((runs % ${#meshes[@]}))
  run=$folder/broken
  rm -rf "$run"
  async=true most_lost=2  # a step may be done beside the save of the one before
  if ((RANDOM % 4 == 0)); then async=false most_lost=1; fi
  for ((attempt = 1; ; attempt++)); do
    victim='' moment=${moments[RANDOM % 4]}
    if ((kills < wanted && attempt < 100)); then victim=${all_victims[RANDOM % 3]}; fi
    trial="kill $((kills + 1)) of seed $seed: ${victim:-none} in $moment, async $async, ${meshes[mesh]}"
    if start; then break; fi
  done
  runs=$((runs + 1))
  diff <(curve "$folder/unbroken-$mesh") <(curve "$run") >"$folder/difference" ||
    die "the metrics are not the unbroken run's: $(head -n 5 "$folder/difference")"
done

echo "$kills kills by seed $seed in $((SECONDS - begun)) s, $runs runs of $steps steps on 4 ranks"
for victim in "${!victims[@]}"; do echo "  $victim killed: ${victims[$victim]}"; done | sort
echo "  before the first step of a start: $in_start; with a save under way: $in_save"
((stuck_mpirun == 0)) || echo "  mpirun did not see that its ranks were gone: $stuck_mpirun times"
for lost in "${!lost_steps[@]}"; do echo "  steps to do again: $lost (${lost_steps[$lost]} times)"; done | sort
