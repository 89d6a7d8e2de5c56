#!/usr/bin/env bash
# Runs the small configurations that train something real, each on four processes, and checks what they reach: ViT on
# scikit-learn's digits (test accuracy), the encoder-decoder on reversing sequences (exact match), and three steps of
# GPT-2 124M on short samples (the loss falls). Needs the peers' Python (launch/setup.sh --peers), a build, and the
# data of launch/quickstart.sh.
set -euo pipefail
# shellcheck source=launch/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../launch/lib.sh"
cd "$root"
python=deps/peers/bin/python
[[ -x $python ]] || die "$python is missing; run launch/setup.sh --peers first"
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT

# train NAME EXIT_CODE [--set a.b=value ...]: the run's last lines.
train() {
  local name=$1 expected=$2 start=$SECONDS code=0
  shift 2
  launch/run_local.sh "configs/$name.yaml" -n 4 --set "run.dir=$runs/$name" "$@" >"$runs/$name.log" 2>&1 || code=$?
  if ((code != expected)); then
    cat "$runs/$name.log" >&2
    die "configs/$name.yaml ended with exit code $code, not $expected"
  fi
  say "$name: $((SECONDS - start)) s"
}

# reached NAME KEY MINIMUM: the last value of a key of metrics.jsonl.
reached() {
  "$python" - "$runs/$1/metrics.jsonl" "$2" "$3" <<'PYTHON'
import json
import sys

path, key, minimum = sys.argv[1], sys.argv[2], float(sys.argv[3])
values = [line[key] for line in map(json.loads, open(path)) if key in line]
print(f"  {key}: {values[-1]:.4f}, at least {minimum} is wanted")
sys.exit(values[-1] < minimum)
PYTHON
}

mkdir -p data
# What appears last says that all is there.
[[ -e data/digits-test.safetensors ]] || "$python" tools/pack_images.py digits data/digits --force
[[ -e data/reverse-target.idx ]] || "$python" tools/make_pairs.py data/reverse --force

train vit-digits 0
reached vit-digits eval_accuracy 0.95
train transformer-seq2seq 0
reached transformer-seq2seq eval_exact_match 0.99
train gpt2-124m 3 --set data.seq_len=128 --set training.stop_after=3 --set eval.every=0
"$python" - "$runs/gpt2-124m/metrics.jsonl" <<'PYTHON'
import json
import sys

losses = [line["loss"] for line in map(json.loads, open(sys.argv[1])) if "loss" in line]
print("  losses: " + ", ".join(f"{loss:.3f}" for loss in losses))
sys.exit(not (len(losses) == 3 and losses[2] < losses[0]))
PYTHON
