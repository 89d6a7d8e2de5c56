"""Trains the same Llama by Tessera over MPI and by PyTorch FSDP2 + TP over gloo, side by side.

For each size, dtype and mesh (dp x tp) it runs both in turn, several rounds (A B A B, so that slow spells of
the machine hit both), and prints Tessera / peer of the median step, the processor time of a step (of all
ranks), launch to the end of step 1, and the peak memory of the largest rank. Both sides are watched from outside by the same code
(watch.py). The floor is what the matrix products alone take (bare_matmul.py).
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "tests/peers"))

import tessera  # noqa: E402
from bare_matmul import step_floor_ms  # noqa: E402
from megatron_index import write_tokens  # noqa: E402
from sizes import SIZES, Size  # noqa: E402
from watch import Run, watch  # noqa: E402

SIDES = ("tessera", "peer")
WARM_UP = 2  # steps that do not count: allocators, caches and thread pools fill up
STEPS = {"small": 22, "medium": 7, "large": 4}
TORCHRUN = Path(sys.executable).parent / "torchrun"


@dataclass(frozen=True)
class Case:
    size: str
    dtype: str
    dp: int
    tp: int

    @property
    def ranks(self) -> int:
        return self.dp * self.tp

    def __str__(self) -> str:
        return f"{self.size} {self.dtype} {self.dp}x{self.tp}"


def tessera_config(case: Case, steps: int, data: Path, run_dir: Path) -> dict:
    size = SIZES[case.size]
    return {
        "run": {"dir": str(run_dir), "seed": 42},
        "model": {"type": "llama", "hidden_size": size.hidden, "intermediate_size": size.ffn,
                  "num_hidden_layers": size.layers, "num_attention_heads": size.heads,
                  "num_key_value_heads": size.kv_heads, "vocab_size": size.vocab},
        "parallel": {"tp": case.tp, "dp_shard": case.dp, "dp_replicate": 1, "zero": 3},
        "precision": {"params": case.dtype, "reduce": "fp32"},
        "data": {"train": [str(data)], "seq_len": size.seq_len},
        "training": {"steps": steps, "global_batch_size": size.micro_batch * case.dp,
                     "micro_batch_size": size.micro_batch, "clip_grad_norm": 1.0, "log_every": 1},
        "optimizer": {"type": "adamw", "lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1},
        "schedule": {"type": "constant", "warmup_steps": 0},
        "checkpoint": {"resume": "none"},
    }


def measure(side: str, case: Case, steps: int, data: Path, unwrapped: bool) -> Run:
    with tempfile.TemporaryDirectory(prefix="tessera-benchmark-") as temporary:
        folder = Path(temporary)
        run_dir, log = folder / "run", folder / "output.txt"
        if side == "tessera":
            config = folder / "config.yaml"
            config.write_text(json.dumps(tessera_config(case, steps, data, run_dir), indent=1))  # JSON is YAML
            command = tessera.launch_command(config, case.ranks)
            return watch(command, run_dir, case.ranks, launcher=case.ranks > 1, log=log)
        command = [str(TORCHRUN), "--standalone", "--nproc-per-node", str(case.ranks), str(FOLDER / "fsdp_peer.py"),
                   "--size", case.size, "--dtype", case.dtype, "--dp", str(case.dp), "--tp", str(case.tp),
                   "--steps", str(steps), "--data", str(data), "--run-dir", str(run_dir)]
        if unwrapped and case.ranks == 1 and case.dtype == "fp32":
            command.append("--unwrapped")
        return watch(command, run_dir, case.ranks, launcher=True, log=log)


@dataclass
class Summary:
    step_ms: float
    cpu_ms: float
    startup_s: float
    peak_mib: float


def summarize(runs: list[Run]) -> Summary:
    return Summary(
        step_ms=statistics.median(ms for run in runs for ms in run.step_ms[WARM_UP:]),
        # The last line is left out: a rank may have ended by then, and with it what it used.
        cpu_ms=statistics.mean(ms for run in runs for ms in run.cpu_ms[WARM_UP - 1 : -1]),
        startup_s=statistics.median(run.startup_s for run in runs),
        peak_mib=max(run.peak_mib for run in runs),
    )


def check_clock(side: str, case: Case, runs: list[Run]) -> None:
    """A run's own step times must be those that an outsider sees (its log may be written a little later)."""
    logged = statistics.median(ms for run in runs for ms in run.step_ms[WARM_UP:])
    seen = statistics.median(ms for run in runs for ms in run.seen_step_ms[WARM_UP - 1 :])
    if abs(seen - logged) > 20 + 0.1 * logged:
        print(f"  note: {case}, {side}: logs steps of {logged:.0f} ms, seen from outside {seen:.0f} ms", flush=True)


@dataclass(frozen=True)
class Columns:
    title: str
    field: str  # of Summary
    digits: int

    width = 30  # Tessera 9, peer 9, ratio 7, and a gap


TABLE = (Columns("step, ms", "step_ms", 1), Columns("processor ms, all ranks", "cpu_ms", 0),
         Columns("launch to step 1, s", "startup_s", 2), Columns("peak MiB per rank", "peak_mib", 0))


def header() -> str:
    titles = "".join(f"{columns.title:>{columns.width}}" for columns in TABLE)
    names = "".join(f"{'Tessera':>14}{'peer':>9}{'ratio':>7}" for _ in TABLE)
    return f"{'':20}{titles}{'floor':>9}\n{'size dtype dp x tp':20}{names}{'ms':>9}"


def row(case: Case, floor_ms: float, summaries: dict[str, Summary]) -> str:
    texts = []
    for columns in TABLE:
        values = [getattr(summaries[side], columns.field) if side in summaries else None for side in SIDES]
        texts += [f"{value:{width}.{columns.digits}f}" if value is not None else f"{'-':>{width}}"
                  for value, width in zip(values, (14, 9))]
        texts.append(f"{values[0] / values[1]:7.2f}" if None not in values else f"{'-':>7}")
    return f"{str(case):20}{''.join(texts)}{floor_ms:9.0f}"


def loss_line(side: str, loss: list[float]) -> str:
    shown = sorted({0, 1, 2, len(loss) // 2, len(loss) - 1} & set(range(len(loss))))
    return f"    {side:8} loss " + ", ".join(f"step {i + 1}: {loss[i]:.3f}" for i in shown)


def write_data(folder: Path, size_name: str) -> Path:
    """Random tokens, a few of them frequent: enough that a falling loss shows that training works."""
    size: Size = SIZES[size_name]
    ranks = np.random.default_rng(1).zipf(1.3, 256 * size.seq_len + 1)
    prefix = folder / size_name
    write_tokens(prefix, [np.minimum(ranks - 1, size.vocab - 1).astype(np.uint16)])
    return prefix


def warm_page_cache() -> None:
    """Reads both sides' libraries once, so that the first launch is not charged for the disk."""
    subprocess.run([sys.executable, "-c", "import torch.distributed.fsdp, torch.distributed.tensor.parallel"], check=True)


def mesh(text: str) -> tuple[int, int]:
    dp, tp = text.split("x")
    return int(dp), int(tp)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["small", "medium"])
    parser.add_argument("--dtypes", nargs="+", choices=["fp32", "bf16"], default=["fp32", "bf16"])
    parser.add_argument("--meshes", nargs="+", type=mesh, default=[(1, 1), (2, 1), (1, 2), (2, 2)], metavar="DPxTP")
    parser.add_argument("--steps", type=int, help=f"of a run, the first {WARM_UP} do not count; default {STEPS}")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each side; default 2")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--unwrapped", action="store_true",
                        help="at 1x1 fp32 the peer is plain PyTorch, without fully_shard")
    parser.add_argument("--output", type=Path, help="also write every measured number to this JSON file")
    arguments = parser.parse_args()
    if arguments.steps is not None and arguments.steps < WARM_UP + 2:
        parser.error(f"--steps {arguments.steps}: the first {WARM_UP} are warm-up; at least {WARM_UP + 2} are needed")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the run under way is ended too
    warm_page_cache()
    cases = [Case(size, dtype, dp, tp) for size in arguments.sizes for dtype in arguments.dtypes
             for dp, tp in arguments.meshes]
    rows, results, failed = [], [], []
    with tempfile.TemporaryDirectory(prefix="tessera-benchmark-data-") as temporary:
        data = {size: write_data(Path(temporary), size) for size in arguments.sizes}
        print(header(), flush=True)
        for case in cases:
            steps = arguments.steps or STEPS[case.size]
            runs: dict[str, list[Run]] = {side: [] for side in arguments.sides}
            try:
                for _ in range(arguments.rounds):
                    for side in arguments.sides:
                        runs[side].append(measure(side, case, steps, data[case.size], arguments.unwrapped))
            except RuntimeError as error:  # the other rows are still worth having
                failed.append(case)
                print(f"{case}: FAILED: {error}", flush=True)
                continue
            floor_ms = step_floor_ms(SIZES[case.size], case.dtype, case.dp, case.tp)
            summaries = {side: summarize(of_side) for side, of_side in runs.items()}
            rows.append(row(case, floor_ms, summaries))
            print(rows[-1], flush=True)
            for side, of_side in runs.items():
                print(loss_line(side, of_side[0].loss), flush=True)
                check_clock(side, case, of_side)
            results.append({"case": asdict(case), "floor_ms": floor_ms,
                            "summary": {side: asdict(summary) for side, summary in summaries.items()},
                            "runs": {side: [asdict(run) for run in of_side] for side, of_side in runs.items()}})
    print("\n" + "\n".join([header(), *rows]))
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(results, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
