#!/usr/bin/env bash
# Makes every rank of a run of four fail in every way, at every moment, and looks whether the run names the one that is at
# fault: as its only error, in logs/outcome.json, and soon. Two ranks of a group that disagree about an operation are both
# named, with what each called: from the two alone nobody can tell which is wrong. Prints a table.
#   culprits.sh TESSERA [PATTERN]    only moments and deeds that match, such as 'collective *'
set -euo pipefail
tessera=$(realpath "$1") pattern=${2:-*}
readonly ranks=4 limit=5  # seconds without progress
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export OMP_NUM_THREADS=1 OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader
launcher=(mpirun --quiet --oversubscribe --bind-to none -n "$ranks")
((EUID != 0)) || launcher+=(--allow-run-as-root)

for ((i = 0; i < 4000; i++)); do echo "line $((i * 7 % 1000))"; done >"$folder/text"
"$tessera" data pack "$folder/text" --out "$folder/tokens" --valid-fraction 0.2 >/dev/null
cat >"$folder/config.yaml" <<YAML
run: {dir: $folder/run, seed: 3}
model: {type: llama, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 2, num_attention_heads: 4,
        num_key_value_heads: 4, vocab_size: 256}
parallel: {dp_shard: 2, tp: 2}
data: {train: [$folder/tokens], valid: [$folder/tokens-valid], seq_len: 32}
training: {steps: 20, global_batch_size: 4, micro_batch_size: 1, log_every: 0}
eval: {every: 8, batches: 2}
checkpoint: {every: 8}
watchdog: {start: $limit, first_step: $limit, step: $limit, save: $limit, validation: $limit}
YAML

wrong=0
# What is expected of `outcome.json` and of the screen, for one rank, moment and deed.
try() {  # MOMENT DEED STEP
  local moment=$1 deed=$2 step=$3 rank begun took code verdicts=() named words
  for ((rank = 0; rank < ranks; rank++)); do
    rm -rf "$folder/run"
    begun=${EPOCHREALTIME/./} code=0
    timeout 60 "${launcher[@]}" "$tessera" train "$folder/config.yaml" \
      --set "debug.inject={rank: $rank, step: $step, at: $moment, do: $deed}" >"$folder/log" 2>&1 || code=$?
    took=$(((${EPOCHREALTIME/./} - begun) / 100000))
    named=$(sed -n 's/.*"rank":\([0-9]*\).*/\1/p' "$folder/run/logs/outcome.json" 2>/dev/null || true)
    words="^error: rank $rank ("
    if [[ $deed == skip || $deed == resize ]]; then
      words="^error: .*ranks disagree: .*rank $rank ("
      named=$rank
    fi
    if ((code == 0 || code == 124)) || [[ $named != "$rank" ]] || ! grep -q "$words" "$folder/log" ||
      (($(grep -c '^error: ' "$folder/log") != 1)); then
      wrong=$((wrong + 1))
      verdicts+=("WRONG")
      printf -- '--- rank %d, %s, %s: exit code %d, outcome.json names rank %s\n' "$rank" "$moment" "$deed" "$code" \
        "${named:-none}" >&2
      tail -n 15 "$folder/log" >&2
    else
      verdicts+=("$(printf 'right %d.%d s' $((took / 10)) $((took % 10)))")
    fi
  done
  printf '| %-10s | %-6s |' "$moment" "$deed"
  printf ' %-12s |' "${verdicts[@]}"
  printf '\n'
  grep -h '^error: ' "$folder/log" | head -n 1 | cut -c1-180 | sed 's/^/    /' || true
}

echo "| at         | do     | rank 0       | rank 1       | rank 2       | rank 3       |"
echo "|---|---|---|---|---|---|"
for moment in start data compute collective save validation; do
  deeds=(throw exit kill stop)
  [[ $moment != collective ]] || deeds+=(skip resize)
  step=6
  case $moment in
    start) step=0 ;;
    save | validation) step=8 ;;
  esac
  for deed in "${deeds[@]}"; do
    # shellcheck disable=SC2053  # a pattern
    [[ "$moment $deed" == $pattern ]] || continue
    try "$moment" "$deed" "$step"
  done
done
((wrong == 0)) || { echo "$wrong wrong"; exit 1; }
