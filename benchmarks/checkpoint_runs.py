"""Tessera's side of checkpoint.py: short trainings that save and load, and the tool that consolidates.

Times of saves and loads are what the run itself writes to metrics.jsonl: save_stall_ms (the loop stands still),
save_ms (until the checkpoint is whole) and load_ms.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from compare_fsdp import Case, tessera, tessera_config
from watch import resident_peak_kib

WARM_UP = 2  # steps that do not count


@dataclass(frozen=True)
class Job:
    """What is trained: the model of a size on sequences so short that a step is little more than its states' traffic."""
    size: str
    seq_len: int
    data: Path

    def config(self, ranks: int, run_dir: Path, steps: int, every: int, asynchronous: bool) -> dict:
        config = tessera_config(Case(self.size, "fp32", ranks, 1), steps, self.data, run_dir)
        config["data"]["seq_len"] = self.seq_len
        config["training"] |= {"global_batch_size": ranks, "micro_batch_size": 1}
        config["checkpoint"] = {"every": every, "keep": 0, "resume": "auto", "async": asynchronous}
        return config

    def peer_arguments(self) -> list[str]:
        return ["--size", self.size, "--seq-len", str(self.seq_len)]


@dataclass
class Times:
    """Of one run, in seconds; without its first save, which finds no memory of an earlier one. Stalls are also without
    the last save's, which ends the run: it waits until that is whole."""
    save: list[float] = field(default_factory=list)
    stall: list[float] = field(default_factory=list)
    load: float | None = None
    beside_save: list[float] = field(default_factory=list)  # steps of which at least half ran beside a save
    beside_none: list[float] = field(default_factory=list)


def train(job: Job, ranks: int, folder: Path, steps: int, every: int, asynchronous: bool) -> Times:
    config = job.config(ranks, folder / "run", steps, every, asynchronous)
    path = folder / "config.yaml"
    path.write_text(json.dumps(config, indent=1))  # JSON is YAML
    _run(tessera.launch_command(path, ranks))
    lines = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    return _times(lines)


def _times(lines: list[dict]) -> Times:
    """Places steps and saves on one line of time: step, stall, step, step, ... A save begins where its step ends."""
    times = Times()
    saves = {line["step"]: line for line in lines if "save_ms" in line}
    for line in lines:
        if "load_ms" in line:
            times.load = line["load_ms"] / 1000
    now, windows, spans = 0.0, [], []
    for line in (line for line in lines if "step_ms" in line):
        seconds = line["step_ms"] / 1000
        spans.append((now, now + seconds))
        now += seconds
        if save := saves.get(line["step"]):
            windows.append((now, now + save["save_ms"] / 1000))
            now += save["save_stall_ms"] / 1000
    ordered = [saves[step] for step in sorted(saves)]
    times.save = [save["save_ms"] / 1000 for save in ordered[1:]]
    times.stall = [save["save_stall_ms"] / 1000 for save in ordered[1:-1]]
    for start, end in spans[WARM_UP:]:
        shared = sum(max(0.0, min(end, last) - max(start, first)) for first, last in windows)
        if shared == 0:
            times.beside_none.append(end - start)
        elif shared >= (end - start) / 2:
            times.beside_save.append(end - start)
    return times


def slowdown(times: Times) -> tuple[float, float]:
    """The median step beside a save, and beside none."""
    if not times.beside_save or not times.beside_none:
        raise RuntimeError(f"{len(times.beside_save)} steps ran beside a save and {len(times.beside_none)} beside none: "
                           "too few to compare; take another --beside-every")
    return statistics.median(times.beside_save), statistics.median(times.beside_none)


def newest_step(folder: Path) -> Path:
    return tessera.newest_step(folder / "run")


def keep_newest(folder: Path) -> None:
    newest = newest_step(folder)
    for step in newest.parent.glob("step-*"):
        if step != newest:
            shutil.rmtree(step)


def rank_files(step: Path) -> list[Path]:
    return sorted(step.glob("rank-*.safetensors"))


@dataclass
class ToolRun:
    seconds: float
    peak_mib: float


def consolidate(step: Path, out: Path, with_optimizer: bool) -> ToolRun:
    """The whole process, from its start to its end."""
    command = [str(tessera.binary()), "checkpoint", "consolidate", str(step), str(out)]
    if with_optimizer:
        command.append("--with-optimizer")
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak = 0
    # Looked at while it runs: what the kernel tells at the end counts the memory of this process too, which started it.
    while process.poll() is None:
        peak = max(peak, resident_peak_kib(process.pid))
        time.sleep(0.005)
    seconds = time.perf_counter() - start
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed with exit code {process.returncode}")
    return ToolRun(seconds, peak / 1024)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, env=tessera.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed with exit code {done.returncode}:\n{done.stdout[-3000:]}")
