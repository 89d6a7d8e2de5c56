"""The peer of `tessera checkpoint consolidate`: DCP's own ways from shards to whole files, in one process.

Prints one line of JSON: the seconds of the work alone (no imports), the bytes that it wrote, and the peak memory of the
process.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from watch import resident_peak_kib


def hugging_face(shards: Path, out: Path, files: int) -> None:
    """The tensors in turn into so many files, with a thread for each."""
    from safetensors import safe_open

    names: set[str] = set()
    for shard in shards.glob("*.safetensors"):
        with safe_open(shard, framework="pt") as file:
            names.update(file.keys())
    out.mkdir()
    mapping = {name: 1 + i % files for i, name in enumerate(sorted(names))}
    consolidate_safetensors_files(str(shards), str(out), mapping, num_threads=files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool", choices=["hugging_face", "torch_save"])
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--files", type=int, default=1, help="of hugging_face: files of the output, one thread each")
    arguments = parser.parse_args()
    start = time.perf_counter()
    if arguments.tool == "hugging_face":
        hugging_face(arguments.source, arguments.out, arguments.files)
    else:
        dcp_to_torch_save(arguments.source, arguments.out)
    seconds = time.perf_counter() - start
    written = [file for file in [arguments.out, *arguments.out.rglob("*")] if file.is_file()]
    print(json.dumps({"seconds": seconds, "bytes": sum(file.stat().st_size for file in written),
                      "peak_mib": resident_peak_kib(os.getpid()) / 1024}))


if __name__ == "__main__":
    main()
