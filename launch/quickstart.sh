#!/usr/bin/env bash
# From a fresh machine to a trained model and its Hugging Face folder: sets up, builds, packs the King
# James Bible as bytes, trains configs/quickstart.yaml on four processes (tensor parallel 2 x ZeRO-3 2),
# and exports the last checkpoint. Run it again and it goes on where it was.
#
#   launch/quickstart.sh           about five minutes of training on two cores
#   launch/quickstart.sh --short   the same path in some seconds of training (what CI runs)
set -euo pipefail
# shellcheck source=launch/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

usage() { sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
config=configs/quickstart.yaml
run=runs/quickstart
overrides=()
for argument in "$@"; do
  case $argument in
    --short)
      run=runs/quickstart-short
      overrides=(--set "run.dir=$run" --set training.steps=30 --set training.log_every=5
        --set schedule.warmup_steps=5 --set eval.every=15 --set eval.batches=2 --set checkpoint.every=15)
      ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; die "unknown argument '$argument'" ;;
  esac
done

title "Set-up"
launch/setup.sh

title "Build"
build tessera
tessera=build/release/tessera

title "Data"
mkdir -p data
bible -f gen1:1-rev22:21 >data/bible.txt.new
mv data/bible.txt.new data/bible.txt
# The text is one document, so its two parts in a row are the text again.
if [[ -e data/bible.idx && -e data/bible-valid.idx ]] &&
  cat data/bible.bin data/bible-valid.bin | cmp --silent - data/bible.txt; then
  say "data/bible and data/bible-valid are there"
else
  force=()
  # Without an index they are what a pack that was killed left.
  [[ -e data/bible.idx && -e data/bible-valid.idx ]] || force=(--force)
  "$tessera" data pack data/bible.txt --out data/bible --valid-fraction 0.05 "${force[@]}"
fi

title "Training: $config on 4 processes"
code=0
launch/run_local.sh "$config" -n 4 "${overrides[@]}" || code=$?
if ((code == 3)); then
  say "Stopped, and nothing is lost. Run ${0##*/} again to go on."
fi
((code == 0)) || exit "$code"

title "Export"
latest=$run/checkpoints/$(<"$run/checkpoints/latest")
rm -rf "$run/export.new"
"$tessera" checkpoint consolidate "$latest" "$run/export.new" >/dev/null
rm -rf "$run/export"
mv "$run/export.new" "$run/export"
say "$latest -> $run/export"

title "Done in $((SECONDS / 60)) min $((SECONDS % 60)) s"
field() { sed -n "s/.*\"$1\": *\([-+.e0-9]*\).*/\1/p" "$run/metrics.jsonl" | tail -n 1; }
printf 'Step %s: training loss %.3f, validation loss %.3f nats per byte.\n\n' \
  "$(field step)" "$(field loss)" "$(field eval_loss)"
say "Where everything is"
printf '  %-50s  %s\n' \
  "$run/metrics.jsonl" "a line per step: loss, gradient norm, time, ..." \
  "$run/config.yaml" "the configuration with every key" \
  "$latest" "the last checkpoint, sharded over the four processes" \
  "$run/export" "the model as a Hugging Face folder: transformers loads it"
steps=$(field step)
cat <<EOF

What to try next (with the configuration that the run has saved)
  train on from the last checkpoint, at the learning rate that the schedule has ended with:
      launch/run_local.sh $run/config.yaml -n 4 --set training.steps=$((steps + steps / 2))
  go on with another mesh (a checkpoint fits any): no layer split, states over two processes
      launch/run_local.sh $run/config.yaml -n 2 --set training.steps=$((2 * steps)) --set parallel.tp=1
  train anew, twice as long, with a schedule that spans it:
      launch/run_local.sh $run/config.yaml -n 4 --set run.dir=$run-long --set training.steps=$((2 * steps))
  look into a checkpoint:
      $tessera checkpoint inspect $latest
  your own text, and every key of a configuration:
      $tessera data pack --help
      $tessera config show $config
EOF
