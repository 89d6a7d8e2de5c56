"""Starts a training run and watches it from outside, the same way for both sides."""

from __future__ import annotations

import json
import math
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

_RANK_VARIABLES = (b"OMPI_COMM_WORLD_RANK=", b"LOCAL_RANK=")  # set by mpirun, and by torchrun
_POLL_SECONDS = 0.01
_MEMORY_POLL_SECONDS = 0.1


@dataclass
class Run:
    startup_s: float  # from launch until the line of step 1 is in metrics.jsonl
    step_ms: list[float]  # as the run itself logs it
    seen_step_ms: list[float]  # time between the lines of metrics.jsonl, from step 2 on
    cpu_ms: list[float]  # processor time of all ranks between those lines; says more on a busy machine
    loss: list[float]
    peak_mib: float  # the largest VmHWM of any rank, from launch to exit


def watch(command: list[str], run_dir: Path, ranks: int, launcher: bool, log: Path) -> Run:
    """Runs to the end. Without a launcher the process itself is the only rank.

    RuntimeError with the end of its output if it fails, or if not every rank was seen.
    """
    metrics = run_dir / "metrics.jsonl"
    rank_pids: list[int] = []
    arrivals: list[float] = []
    cpu_at_arrival: list[float] = []
    peak_kib = 0
    next_memory_poll = 0.0
    with open(log, "wb") as output:
        launch = time.perf_counter()
        process = subprocess.Popen(command, env=_environment(), stdout=output, stderr=subprocess.STDOUT)
        try:
            while process.poll() is None:
                now = time.perf_counter()
                lines = metrics.read_bytes().count(b'"step_ms"') if metrics.exists() else 0
                if lines > len(arrivals):
                    cpu = sum(map(_cpu_ms, rank_pids))
                    cpu_at_arrival += [cpu] * (lines - len(arrivals))
                    arrivals += [now] * (lines - len(arrivals))
                if now >= next_memory_poll:
                    next_memory_poll = now + _MEMORY_POLL_SECONDS
                    if len(rank_pids) < ranks:
                        rank_pids = _rank_pids(process.pid) if launcher else [process.pid]
                    peak_kib = max([peak_kib, *map(resident_peak_kib, rank_pids)])
                time.sleep(_POLL_SECONDS)
        finally:  # an interrupted benchmark leaves no run behind
            if process.poll() is None:
                process.terminate()
                process.wait()
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed with exit code {process.returncode}:\n"
                           + log.read_text(errors="replace")[-3000:])
    if len(rank_pids) != ranks:
        raise RuntimeError(f"{' '.join(command)}: saw {len(rank_pids)} of {ranks} ranks")
    steps = [json.loads(line) for line in metrics.read_text().splitlines() if '"step_ms"' in line]  # not those of saves
    return Run(
        startup_s=arrivals[0] - launch,
        step_ms=[step["step_ms"] for step in steps],
        seen_step_ms=[1000 * (b - a) for a, b in zip(arrivals, arrivals[1:])],
        cpu_ms=[b - a for a, b in zip(cpu_at_arrival, cpu_at_arrival[1:])],
        loss=[step["loss"] for step in steps],
        peak_mib=peak_kib / 1024,
    )


def _rank_pids(launcher: int) -> list[int]:
    """The first processes below the launcher whose environment names a rank."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = stat.read_text().rpartition(")")[2].split()[1]  # a name may hold spaces and parentheses
        except OSError:  # it has just ended
            continue
        children.setdefault(int(parent), []).append(int(stat.parent.name))
    found: list[int] = []
    waiting = [launcher]
    while waiting:
        for pid in children.get(waiting.pop(), []):
            (found if _is_rank(pid) else waiting).append(pid)
    return found


def _is_rank(pid: int) -> bool:
    try:
        environment = b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return any(b"\0" + name in environment for name in _RANK_VARIABLES)


def resident_peak_kib(pid: int) -> int:
    """VmHWM: the most memory that was ever resident, shared pages included."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0  # it has ended


def _cpu_ms(pid: int) -> float:
    """User and system time of all its threads so far."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return math.nan  # no time is known of a rank that has ended
    return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _environment() -> dict[str, str]:
    """Without what an outer launcher may have left, so that ranks are told apart by their own variables."""
    outer = [name for name in os.environ if name.startswith(("OMPI_", "PMIX_")) or name in ("RANK", "LOCAL_RANK")]
    kept = {name: value for name, value in os.environ.items() if name not in outer or name.startswith("OMPI_MCA_")}
    return kept | {"OMP_NUM_THREADS": "1"}
