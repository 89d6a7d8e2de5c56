"""What parallel.tp_overlap gains: the same Llama on tp ranks with each mode, in turn (A B C A B C).

Prints the median step, the processor time of all ranks, how long the communication of the layers took on rank 0, and
the part of it that ran beside computation; ratios are to `off` with the same split of the tokens. Runs with
deps/peers/bin/python (launch/setup.sh --peers), as compare_fsdp.py.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from compare_fsdp import STEPS, WARM_UP, Case, Summary, summarize, tessera, tessera_config, write_data
from sizes import SIZES
from watch import Run, watch

MODES = (("whole tokens", "off"), ("whole tokens", "backward"), ("sequence parallel", "off"),
         ("sequence parallel", "backward"), ("sequence parallel", "ring"))


def measure(case: Case, split: str, mode: str, steps: int, data: Path) -> tuple[Run, list[dict]]:
    with tempfile.TemporaryDirectory(prefix="tessera-benchmark-") as temporary:
        folder = Path(temporary)
        config = tessera_config(case, steps, data, folder / "run")
        config["parallel"] |= {"sequence_parallel": split == "sequence parallel", "tp_overlap": mode}
        (folder / "config.yaml").write_text(json.dumps(config))
        run = watch(tessera.launch_command(folder / "config.yaml", case.ranks), folder / "run", case.ranks,
                    launcher=True, log=folder / "output.txt")
        return run, tessera.read_metrics(folder / "run")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="medium")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--tp", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, help=f"of a run, the first {WARM_UP} do not count; default {STEPS}")
    arguments = parser.parse_args()
    case = Case(arguments.size, arguments.dtype, dp=1, tp=arguments.tp)
    steps = arguments.steps or STEPS[case.size]
    runs: dict[tuple[str, str], list[Run]] = {mode: [] for mode in MODES}
    lines: dict[tuple[str, str], list[dict]] = {mode: [] for mode in MODES}
    with tempfile.TemporaryDirectory(prefix="tessera-benchmark-data-") as temporary:
        data = write_data(Path(temporary), case.size)
        for _ in range(arguments.rounds):
            for mode in MODES:
                run, metrics = measure(case, *mode, steps, data)
                runs[mode].append(run)
                lines[mode] += metrics[WARM_UP:]
    print(f"{case}, {arguments.rounds} rounds of {steps} steps\n"
          f"{'tokens':18}{'tp_overlap':11}{'step ms':>9}{'ratio':>7}{'processor ms':>14}{'ratio':>7}"
          f"{'tp ms':>8}{'hidden':>8}")
    base: Summary | None = None
    for split, mode in MODES:
        found = summarize(runs[split, mode])
        if mode == "off":
            base = found
        tp_ms, hidden = (statistics.median(line[key] for line in lines[split, mode]) for key in ("tp_ms", "tp_hidden"))
        print(f"{split:18}{mode:11}{found.step_ms:9.1f}{found.step_ms / base.step_ms:7.2f}{found.cpu_ms:14.0f}"
              f"{found.cpu_ms / base.cpu_ms:7.2f}{tp_ms:8.1f}{hidden:8.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
