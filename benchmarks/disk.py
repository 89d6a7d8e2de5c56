"""What disk and memory themselves take for the bytes of a checkpoint: the floor of a save, a load, a snapshot.

As many processes at once as there are ranks, each with its part of the bytes. A time is that of the slowest.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import time
from pathlib import Path

import numpy as np


def write_seconds(folder: Path, total: int, processes: int) -> float:
    """dd with fsync, a file each. The files are removed again, outside of what is timed."""
    files = [folder / f"written-{i}" for i in range(processes)]
    seconds = _run_all([["dd", "if=/dev/zero", f"of={file}", "bs=4M", f"count={total // processes}",
                         "iflag=count_bytes,fullblock", "conv=fsync", "status=none"] for file in files])
    for file in files:
        file.unlink()
    settle()
    return seconds


def read_seconds(files: list[Path]) -> float:
    """dd of every file at once, to nowhere."""
    return _run_all([["dd", f"if={file}", "of=/dev/null", "bs=4M", "status=none"] for file in files])


def copy_seconds(total: int, processes: int) -> float:
    """A plain copy of the bytes from memory to memory that has been touched before."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(processes)
    times = context.Queue()
    workers = [context.Process(target=_copy, args=(total // processes, barrier, times)) for _ in range(processes)]
    for worker in workers:
        worker.start()
    slowest = max(times.get() for _ in workers)
    for worker in workers:
        worker.join()
    return slowest


def forget(folder: Path) -> None:
    """Takes the folder's files out of the page cache, so that the next reader has to ask the disk."""
    os.sync()  # what is not yet on the disk stays in the cache
    for file in folder.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def warm(folder: Path) -> None:
    """Reads the folder's files, so that the next reader finds them in the page cache."""
    read_seconds([file for file in folder.rglob("*") if file.is_file()])


def settle() -> None:
    """What is still to be written or freed should not be charged to what is measured next."""
    os.sync()
    time.sleep(0.5)


def _run_all(commands: list[list[str]]) -> float:
    start = time.perf_counter()
    processes = [subprocess.Popen(command) for command in commands]
    codes = [process.wait() for process in processes]
    seconds = time.perf_counter() - start
    if any(codes):
        raise RuntimeError(f"{' '.join(commands[0])} and its like ended with {codes}")
    return seconds


def _copy(size: int, barrier, times) -> None:
    source = np.ones(size // 4, np.float32)
    target = np.zeros_like(source)
    target[:] = 1  # zeros are not there until they are written to
    for _ in range(2):  # the first one warms up
        barrier.wait()
        start = time.perf_counter()
        np.copyto(target, source)
        seconds = time.perf_counter() - start
    times.put(seconds)
