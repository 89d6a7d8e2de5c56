#!/usr/bin/env python3
"""Writes labelled images as the safetensors files that `data.kind: images` reads.

  tools/pack_images.py digits OUT         scikit-learn's handwritten digits (real scans of 8 x 8, ten classes):
                                          OUT-train.safetensors (1,442) and OUT-test.safetensors (355)
  tools/pack_images.py folder IN OUT --size H W [--gray] [--test-every K]
                                          any folder of class folders of images, resized; class numbers follow
                                          the sorted names of the class folders

Every K-th image of a class (5 unless given; 0: none) goes to the test file, so the split is fixed. Run it
with deps/peers/bin/python (launch/setup.sh --peers).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file


def write(path: Path, images: np.ndarray, labels: np.ndarray, classes: list[str]) -> None:
    """images uint8 [N, C, H, W], labels int64 [N]; the names of the classes go along as metadata."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({"images": np.ascontiguousarray(images), "labels": labels.astype(np.int64)}, path,
              metadata={"classes": json.dumps(classes)})
    print(f"wrote {path}: {len(images)} images of {' x '.join(map(str, images.shape[1:]))}, {len(classes)} classes")


def write_split(out: str, images: np.ndarray, labels: np.ndarray, classes: list[str], test_every: int) -> None:
    place = np.zeros(len(labels), dtype=np.int64)  # of each image within its class
    for label in range(len(classes)):
        mine = labels == label
        place[mine] = np.arange(mine.sum())
    test = place % test_every == test_every - 1 if test_every else np.zeros(len(labels), dtype=bool)
    write(Path(f"{out}-train.safetensors"), images[~test], labels[~test], classes)
    if test.any():
        write(Path(f"{out}-test.safetensors"), images[test], labels[test], classes)


def digits() -> tuple[np.ndarray, np.ndarray, list[str]]:
    from sklearn.datasets import load_digits

    data = load_digits()
    images = np.rint(data.images * 255 / 16).astype(np.uint8)  # scans of 17 shades
    return images[:, None], data.target, [str(name) for name in data.target_names]


def folder(path: Path, size: tuple[int, int], gray: bool) -> tuple[np.ndarray, np.ndarray, list[str]]:
    from PIL import Image

    classes = sorted(entry.name for entry in path.iterdir() if entry.is_dir())
    if not classes:
        raise SystemExit(f"{path} has no class folders")
    images, labels = [], []
    for label, name in enumerate(classes):
        for file in sorted((path / name).iterdir()):
            with Image.open(file) as image:
                resized = image.convert("L" if gray else "RGB").resize(size[::-1], Image.Resampling.BILINEAR)
            pixels = np.asarray(resized)
            images.append(pixels[None] if gray else pixels.transpose(2, 0, 1))
            labels.append(label)
    if not images:
        raise SystemExit(f"{path} has no images in its {len(classes)} class folders")
    return np.stack(images), np.array(labels), classes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    of_digits = commands.add_parser("digits")
    of_digits.add_argument("out")
    of_folder = commands.add_parser("folder")
    of_folder.add_argument("input", type=Path)
    of_folder.add_argument("out")
    of_folder.add_argument("--size", type=int, nargs=2, required=True, metavar=("H", "W"))
    of_folder.add_argument("--gray", action="store_true")
    for command in (of_digits, of_folder):
        command.add_argument("--test-every", type=int, default=5, metavar="K")
    arguments = parser.parse_args()
    if arguments.command == "digits":
        images, labels, classes = digits()
    else:
        images, labels, classes = folder(arguments.input, tuple(arguments.size), arguments.gray)
    write_split(arguments.out, images, labels, classes, arguments.test_every)


if __name__ == "__main__":
    main()
