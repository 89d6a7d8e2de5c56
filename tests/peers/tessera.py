"""Runs the tessera binary from Python: commands, training under mpirun, and reading its metrics."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def binary() -> Path:
    path = Path(os.environ.get("TESSERA_BIN", ROOT / "build/release/tessera"))
    if not path.exists():
        raise SystemExit(f"{path} is missing: build it (cmake --preset release && cmake --build --preset release), "
                         "or name another one in TESSERA_BIN")
    return path


def launch_command(config: Path, ranks: int) -> list[str]:
    """One process needs no launcher; several run on this machine, more than it has cores if need be."""
    command = [str(binary()), "train", str(config)]
    if ranks == 1:
        return command
    # As launch/run_local.sh does: on one machine Open MPI need not look for networks.
    local = ["--mca", "pml", "ob1", "--mca", "btl", "self,vader"]
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", *local, "-n", str(ranks), *command]


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1"}


def run(*arguments: str | Path) -> None:
    """`tessera ARGUMENTS`; its output shows only where it fails."""
    _check([str(binary()), *map(str, arguments)])


def train(config: dict, folder: Path, ranks: int) -> list[dict]:
    """Trains `config` (its run.dir is set to FOLDER/run); returns the metrics of the training steps."""
    config = config | {"run": config.get("run", {}) | {"dir": str(folder / "run")}}
    path = folder / "config.yaml"
    path.write_text(json.dumps(config, indent=1))  # JSON is YAML
    _check(launch_command(path, ranks))
    return read_metrics(folder / "run")


def read_metrics(run_dir: Path) -> list[dict]:
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "loss" in line]


def newest_step(run_dir: Path) -> Path:
    return max((run_dir / "checkpoints").glob("step-*[0-9]"))


def _check(command: list[str]) -> None:
    done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed with exit code {done.returncode}:\n{done.stdout}")
