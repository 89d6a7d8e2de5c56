"""Checkpoints of Tessera beside the bare disk and beside PyTorch's own (DCP), in turn, as ratios with their limits.

Each round writes and reads the same bytes by dd, by Tessera and by DCP: a synchronous save, an asynchronous one, a load
from the disk and from the page cache, and the tools that make whole files of shards. Prints a table of medians (least to
most) and what of it is beyond its limit; exit code 1 if anything is.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import checkpoint_runs as ours
import disk
from compare_fsdp import FOLDER, TORCHRUN, tessera, write_data
from sizes import SIZES

PARTS = ("load", "async", "beside", "tools")
TOOL_FILES = (1, 2)  # files of DCP's consolidated output, a thread for each; the faster one counts

Numbers = dict[str, list[float]]  # seconds (or MiB) by what was measured


@dataclass(frozen=True)
class Row:
    title: str
    ours: str  # names in Numbers
    theirs: str  # or none: then `ours` itself is compared with the limit
    limit: float | None = None  # none: for information
    speed: bool = False  # the ratio is of speeds and must be at least the limit, else of times and at most the limit

    def ratio(self, numbers: Numbers) -> float:
        own = statistics.median(numbers[self.ours])
        if not self.theirs:
            return own
        other = statistics.median(numbers[self.theirs])
        return other / own if self.speed else own / other

    def holds(self, numbers: Numbers) -> bool:
        if self.limit is None:
            return True
        ratio = self.ratio(numbers)
        return ratio >= self.limit if self.speed else ratio <= self.limit


ROWS = (
    Row("save", "save", "dd write", 0.8, speed=True),
    Row("save", "save", "DCP save", speed=True),
    Row("load, from the disk", "load cold", "dd read cold", 0.8, speed=True),
    Row("load, from the disk", "load cold", "DCP load cold", speed=True),
    Row("load, from the page cache", "load warm", "dd read warm", speed=True),
    Row("load, from the page cache", "load warm", "DCP load warm", speed=True),
    Row("asynchronous save: stall", "stall", "memory copy", 1.5),
    Row("asynchronous save: stall", "stall", "DCP stall", speed=True),
    Row("asynchronous save: until whole", "async save", "DCP async save", speed=True),
    Row("a step beside a save (1 rank)", "step beside", "step alone", 1.15),
    Row("consolidate the weights", "weights", "DCP consolidate, command", 3, speed=True),
    Row("consolidate the weights", "weights", "DCP to torch.save, weights, command", 3, speed=True),
    Row("consolidate the whole state", "whole state", "DCP to torch.save, command", 3, speed=True),
    Row("consolidate the weights", "weights", "DCP consolidate", speed=True),
    Row("consolidate the weights", "weights", "DCP to torch.save, weights", speed=True),
    Row("consolidate the whole state", "whole state", "DCP to torch.save", speed=True),
    Row("consolidate the whole state", "whole state", "dd write", speed=True),
    Row("peak MiB, weights", "weights MiB", "", 300),
    Row("peak MiB, whole state", "whole state MiB", "", 300),
    Row("peak MiB, weights", "weights MiB", "DCP consolidate MiB"),
    Row("peak MiB, whole state", "whole state MiB", "DCP to torch.save MiB"),
)


def spread(values: list[float]) -> str:
    digits = 0 if min(values) >= 10 else 3
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def print_table(numbers: Numbers) -> bool:
    """True: every limit holds."""
    print(f"\n{'':32}{'Tessera':>24}  {'beside':36}{'':>24}{'ratio':>8}{'limit':>10}")
    good = True
    for row in ROWS:
        if row.ours not in numbers or row.theirs and row.theirs not in numbers:
            continue  # a part that was not asked for
        other = spread(numbers[row.theirs]) if row.theirs else ""
        limit = "" if row.limit is None else f"{'>=' if row.speed else '<='} {row.limit:g}"
        verdict = "" if row.limit is None else "  holds" if row.holds(numbers) else "  BEYOND"
        good = good and row.holds(numbers)
        print(f"{row.title:32}{spread(numbers[row.ours]):>24}  {row.theirs:36}{other:>24}{row.ratio(numbers):8.2f}"
              f"{limit:>10}{verdict}")
    print("\nSeconds (or MiB): median (least to most). A ratio with a limit >= is one of speeds, Tessera / beside; one "
          "with <= is one of times (or of memory).")
    return good


class Round:
    """One round of measurements in a folder of its own, on the file system that is measured."""

    def __init__(self, arguments: argparse.Namespace, job: ours.Job, folder: Path, numbers: Numbers) -> None:
        self.arguments, self.job, self.folder, self.numbers = arguments, job, folder, numbers
        self.ranks = arguments.ranks

    def note(self, name: str, *values: float) -> None:
        self.numbers[name] += values

    def run(self) -> None:
        times = ours.train(self.job, self.ranks, self.folder, steps=3, every=1, asynchronous=False)
        self.note("save", *times.save)
        ours.keep_newest(self.folder)
        disk.settle()
        step = ours.newest_step(self.folder)
        total = sum(file.stat().st_size for file in ours.rank_files(step))
        self.note("GB", total / 1e9)
        self.note("dd write", *(disk.write_seconds(self.folder, total, self.ranks) for _ in range(2)))
        if "tools" in self.arguments.parts:
            self.consolidate(step)
        if "load" in self.arguments.parts:
            self.load(step)
        self.peer(total)
        if "async" in self.arguments.parts:
            self.save_beside_training(total)
        if "beside" in self.arguments.parts:
            self.steps_beside_a_save()

    def fresh(self, name: str) -> Path:
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        disk.settle()
        return folder

    def consolidate(self, step: Path) -> None:
        for name, with_optimizer in (("weights", False), ("whole state", True)):
            out = self.fresh("consolidated")
            disk.warm(step)
            found = ours.consolidate(step, out, with_optimizer)
            self.note(name, found.seconds)
            self.note(f"{name} MiB", found.peak_mib)
            shutil.rmtree(out)

    def load(self, step: Path) -> None:
        """Each load is a run of one more step, which begins by loading the newest checkpoint and ends by saving."""
        for how in ("cold", "warm"):
            files = ours.rank_files(step)
            prepare = disk.forget if how == "cold" else disk.warm
            prepare(step)
            self.note(f"dd read {how}", disk.read_seconds(files))
            prepare(step)
            steps = int(step.name.removeprefix("step-")) + 1
            times = ours.train(self.job, self.ranks, self.folder, steps=steps, every=0, asynchronous=False)
            if times.load is None:
                raise RuntimeError("metrics.jsonl does not say how long the load took (load_ms)")
            self.note(f"load {how}", times.load)
            ours.keep_newest(self.folder)
            step = ours.newest_step(self.folder)

    def peer(self, total: int) -> None:
        folder = self.fresh("peer")
        command = [str(TORCHRUN), "--standalone", "--nproc-per-node", str(self.ranks), str(FOLDER / "dcp_peer.py"),
                   *self.job.peer_arguments(), "--folder", str(folder), "--parts", "save", *self.arguments.parts]
        found = run_json(command)
        for name, values in found.items():
            self.note(f"DCP {name.replace('_', ' ')}", *values)
        written = sum(file.stat().st_size for file in (folder / "dcp").iterdir())
        if abs(written - total) > 0.05 * total:
            raise RuntimeError(f"DCP's checkpoint has {written} bytes, Tessera's {total}: they do not hold the same")
        if "tools" in self.arguments.parts:
            self.peer_tools(folder)
        shutil.rmtree(folder)
        disk.settle()

    def peer_tools(self, folder: Path) -> None:
        def run(tool: str, source: str, *more: str) -> dict:
            out = folder / "out"
            disk.warm(folder / source)
            disk.settle()
            start = time.perf_counter()
            found = run_json([sys.executable, str(FOLDER / "dcp_tools.py"), tool, str(folder / source), str(out), *more])
            found["command"] = time.perf_counter() - start
            shutil.rmtree(out) if out.is_dir() else out.unlink()
            return found
        fastest = min((run("hugging_face", "hf-shards", "--files", str(files)) for files in TOOL_FILES),
                      key=lambda found: found["seconds"])
        for name, found in (("consolidate", fastest), ("to torch.save, weights", run("torch_save", "dcp-weights")),
                            ("to torch.save", run("torch_save", "dcp"))):
            self.note(f"DCP {name}", found["seconds"])
            self.note(f"DCP {name}, command", found["command"])
            self.note(f"DCP {name} MiB", found["peak_mib"])

    def save_beside_training(self, total: int) -> None:
        folder = self.fresh("async")
        every = self.arguments.async_every
        times = ours.train(self.job, self.ranks, folder, steps=4 * every, every=every, asynchronous=True)
        self.note("stall", *times.stall)
        self.note("async save", *times.save)
        shutil.rmtree(folder)
        disk.settle()
        self.note("memory copy", *(disk.copy_seconds(total, self.ranks) for _ in range(2)))

    def steps_beside_a_save(self) -> None:
        """One rank of one thread, so that the other core is free for the save."""
        folder = self.fresh("beside")
        every = self.arguments.beside_every
        times = ours.train(self.job, 1, folder, steps=3 * every, every=every, asynchronous=True)
        beside, alone = ours.slowdown(times)
        self.note("step beside", beside)
        self.note("step alone", alone)
        shutil.rmtree(folder)
        disk.settle()


def run_json(command: list[str]) -> dict:
    """The last line that the command prints is JSON."""
    done = subprocess.run(command, env=tessera.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed with exit code {done.returncode}:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="medium", help="medium: 1.2 GB of states; large: 3.6 GB")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS), help="besides the save; default: all")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()),
                        help="on the disk that is measured; default: the folder of temporary files")
    parser.add_argument("--seq-len", type=int, default=32)
    parser.add_argument("--async-every", type=int, default=6, help="steps between asynchronous saves, so many that a "
                        "save ends before the next one begins")
    parser.add_argument("--beside-every", type=int, default=12, help="the same on one rank, where the steps beside a "
                        "save are compared with the others")
    parser.add_argument("--output", type=Path, help="also write every measured number to this JSON file")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    numbers: Numbers = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="tessera-benchmark-", dir=arguments.folder) as temporary:
        folder = Path(temporary)
        job = ours.Job(arguments.size, arguments.seq_len, write_data(folder, arguments.size))
        for number in range(1, arguments.rounds + 1):
            own = folder / f"round-{number}"
            own.mkdir()
            Round(arguments, job, own, numbers).run()
            shutil.rmtree(own)
            print(f"round {number} of {arguments.rounds} done", flush=True)
    print(f"{arguments.size}: {numbers['GB'][0]:.2f} GB of states, {arguments.ranks} ranks, {arguments.rounds} rounds")
    good = print_table(numbers)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(numbers, indent=1) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
