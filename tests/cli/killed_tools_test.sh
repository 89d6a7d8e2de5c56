#!/usr/bin/env bash
# Ends the commands that write checkpoints and model folders by SIGKILL, over and over, at random moments. After each
# kill the output is whole or absent, or where it replaces an older one (--force) the older one; the next call succeeds
# and leaves nothing of the killed one behind.
#   killed_tools_test.sh TESSERA [--kills N] [--seed S]
set -euo pipefail
# shellcheck source=tests/support/kills.sh
source "$(dirname "${BASH_SOURCE[0]}")/../support/kills.sh"
wanted=30 trial=preparation
begin_kills "$@"

# A checkpoint of four rank files, 50 MB, and the model folder of another one.
pack_text
cat >"$folder/config.yaml" <<YAML
run: {dir: $folder/run, seed: 3}
model: {type: llama, hidden_size: 256, intermediate_size: 768, num_hidden_layers: 4, num_attention_heads: 4,
        num_key_value_heads: 4, vocab_size: 2048}
parallel: {dp_shard: 2, tp: 2}
data: {train: [$folder/tokens], seq_len: 16}
training: {steps: 2, global_batch_size: 2, micro_batch_size: 1}
schedule: {warmup_steps: 0}
checkpoint: {every: 1, keep: 0}
YAML
"${launcher[@]}" "$tessera" train "$folder/config.yaml" >"$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
step=$folder/run/checkpoints/step-00000002 older=$folder/run/checkpoints/step-00000001
"$tessera" checkpoint consolidate "$step" "$folder/model" >/dev/null
"$tessera" checkpoint consolidate "$older" "$folder/older-model" >/dev/null
mkdir "$folder/work"
out=$folder/work/out

# NAME: what it reads; the arguments follow in command_of().
tools=(consolidate whole-state import reshard)
command_of() {  # NAME SOURCE|OLDER
  local from=$step model=$folder/model
  [[ $2 == source ]] || from=$older model=$folder/older-model
  case $1 in
    consolidate) command=("$tessera" checkpoint consolidate "$from" "$out") ;;
    whole-state) command=("$tessera" checkpoint consolidate "$from" "$out" --with-optimizer) ;;
    import) command=("$tessera" checkpoint import "$model" "$out") ;;
    reshard) command=("$tessera" checkpoint reshard "$from" "$out" --mesh 1x4x1) ;;
  esac
}
same() { diff -rq "$1" "$2" >/dev/null 2>&1; }
run() { "${command[@]}" "$@" >"$folder/log" 2>&1; }

# What each writes when nothing happens, and in how many milliseconds.
declare -A milliseconds=()
for tool in "${tools[@]}"; do
  for from in older source; do
    command_of "$tool" $from
    trial="$tool without a kill"
    begun=${EPOCHREALTIME/./}
    run || die "it failed"
    milliseconds[$tool]=$(((${EPOCHREALTIME/./} - begun) / 1000))
    mv "$out" "$folder/$tool-$from"
  done
done

kills=0
declare -A outputs=([whole]=0 [absent]=0 [older]=0)
begun=$SECONDS
while ((kills < wanted)); do
  tool=${tools[RANDOM % ${#tools[@]}]}
  force=()
  if ((RANDOM % 2 == 0)); then
    force=(--force)
    cp -r "$folder/$tool-older" "$out"
  fi
  trial="kill $((kills + 1)) of seed $seed, $tool ${force[*]}"
  command_of "$tool" source
  "${command[@]}" "${force[@]}" >"$folder/log" 2>&1 &  # no function: the job must be the program itself
  job=$!
  ms=$((RANDOM % (milliseconds[$tool] * 11 / 10)))
  pause "$ms"
  kill -KILL "$job" 2>/dev/null && killed=true || killed=false
  code=0
  wait "$job" 2>/dev/null || code=$?
  $killed || ((code == 0)) || die "ended with exit code $code"
  if same "$out" "$folder/$tool-source"; then
    found=whole
  elif [[ ! -e $out ]]; then
    found=absent
  elif [[ ${force[*]} ]] && same "$out" "$folder/$tool-older"; then
    found=older
  else
    die "after $ms ms: what stands at the output's name is neither whole nor the older one"
  fi
  if ((code == 0)); then  # it was done before
    [[ $found == whole ]] || die "it is done, but the output is $found"
  else
    kills=$((kills + 1))
    outputs[$found]=$((outputs[$found] + 1))
  fi
  # The next call: with --force as before, or where nothing stands in its way.
  if [[ ! ${force[*]} ]] && [[ -e $out ]]; then rm -r "$out"; fi
  run "${force[@]}" || die "after $ms ms: the next call failed"
  same "$out" "$folder/$tool-source" || die "after $ms ms: the next call wrote something else"
  rm -r "$out"
  [[ -z $(ls -A "$folder/work") ]] || die "after $ms ms: the next call left $(ls -A "$folder/work")"
done
echo "$kills kills by seed $seed in $((SECONDS - begun)) s; the output was whole ${outputs[whole]} times, absent" \
  "${outputs[absent]} times, the older one ${outputs[older]} times; each next call succeeded and left nothing behind"
