#!/usr/bin/env python3
"""Writes labelled images as the safetensors files that `data.kind: images` reads.

  tools/pack_images.py digits OUT [--force]
                                          scikit-learn's handwritten digits (real scans of 8 x 8, ten classes):
                                          OUT-train.safetensors (1,442) and OUT-test.safetensors (355)
  tools/pack_images.py folder IN OUT --size H W [--gray] [--test-every K] [--force]
                                          any folder of class folders of images, resized; class numbers follow
                                          the sorted names of the class folders

Every K-th image of a class (5 unless given; 0: none) goes to the test file, so the split is fixed. Hidden
files are passed over, other files that are no images are named. One image is in memory at a time. Files
that are there already are replaced, both together, with --force only. Run it with deps/tools/bin/python
(launch/setup.sh --tools) or any Python with numpy, Pillow and, for the digits, scikit-learn.
"""

from __future__ import annotations

import argparse
import json
import math
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from needs import need
from outputs import Outputs

if TYPE_CHECKING:
    import numpy as np


def write(path: Path, shape: tuple[int, ...], labels: Sequence[int], image: Callable[[int], np.ndarray],
          classes: list[str]) -> None:
    """image(i): uint8 of `shape` [C, H, W] for labels[i]; the names of the classes go along as metadata.

    The layout of safetensors: the length of a header in JSON, the header, the data.
    """
    import numpy as np

    bytes_of_labels = 8 * len(labels)
    end = bytes_of_labels + len(labels) * math.prod(shape)
    header = json.dumps({
        "__metadata__": {"classes": json.dumps(classes)},
        "labels": {"dtype": "I64", "shape": [len(labels)], "data_offsets": [0, bytes_of_labels]},
        "images": {"dtype": "U8", "shape": [len(labels), *shape], "data_offsets": [bytes_of_labels, end]},
    }).encode()
    header += b" " * (-len(header) % 8)
    with path.open("wb") as out:
        out.write(struct.pack("<Q", len(header)) + header + np.asarray(labels, dtype="<i8").tobytes())
        for i in range(len(labels)):
            pixels = image(i)
            assert pixels.dtype == np.uint8 and pixels.shape == shape
            out.write(np.ascontiguousarray(pixels).tobytes())


def write_split(outputs: Outputs, shape: tuple[int, ...], labels: Sequence[int],
                image: Callable[[int], np.ndarray], classes: list[str], test_every: int) -> None:
    seen = [0] * len(classes)
    parts: dict[Path, list[int]] = {path: [] for path in outputs.paths}
    train, test = outputs.paths
    for i, label in enumerate(labels):
        seen[label] += 1
        parts[test if test_every and seen[label] % test_every == 0 else train].append(i)
    parts = {path: part for path, part in parts.items() if part}
    with outputs:
        for path, part in parts.items():
            write(outputs.begin(path), shape, [labels[i] for i in part], lambda k, part=part: image(part[k]), classes)
    for path, part in parts.items():
        print(f"wrote {path}: {len(part)} images of {' x '.join(map(str, shape))}, {len(classes)} classes")


def pack_digits(outputs: Outputs, test_every: int) -> None:
    import numpy as np
    from sklearn.datasets import load_digits

    data = load_digits()
    images = np.rint(data.images * 255 / 16).astype(np.uint8)[:, None]  # scans of 17 shades
    write_split(outputs, images.shape[1:], [int(label) for label in data.target], lambda i: images[i],
                [str(name) for name in data.target_names], test_every)


def eight_bits(image, file: Path):
    """`image` with 8 bits a channel; Pillow's own conversion of deeper gray cuts values off at 255."""
    import numpy as np
    from PIL import Image

    if image.mode.startswith("I;16"):
        return Image.fromarray(((np.asarray(image).astype(np.uint32) * 255 + 32767) // 65535).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise SystemExit(f"{file}: has {image.mode} pixels of 32 bits, whose range it does not say; convert it to 8 or "
                         "16 bits")
    return image


def read_image(file: Path, size: tuple[int, int], gray: bool) -> np.ndarray:
    import numpy as np
    from PIL import Image

    try:
        with Image.open(file) as image:
            whole = eight_bits(image, file).convert("L" if gray else "RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise SystemExit(f"{file}: cannot be read as an image: {error}; repair or remove it") from error
    pixels = np.asarray(whole.resize(size[::-1], Image.Resampling.BILINEAR))
    return pixels[None] if gray else pixels.transpose(2, 0, 1)


def is_image(file: Path) -> bool:
    """By its first bytes; says which files are none."""
    from PIL import Image, UnidentifiedImageError

    if file.name.startswith("."):
        return False
    if file.is_file():
        try:
            with Image.open(file):
                return True
        except UnidentifiedImageError:
            pass
        except Image.DecompressionBombError as error:
            raise SystemExit(f"{file}: {error}") from error
    print(f"passed over {file}: not an image", file=sys.stderr)
    return False


def pack_folder(path: Path, outputs: Outputs, size: tuple[int, int], gray: bool, test_every: int) -> None:
    if not path.is_dir():
        raise SystemExit(f"{path} is not a folder")
    classes = sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not classes:
        raise SystemExit(f"{path} has no class folders")
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        mine = [file for file in sorted((path / name).iterdir()) if is_image(file)]
        if not mine:
            print(f"class {label}, {path / name}, has no images", file=sys.stderr)
        files += mine
        labels += [label] * len(mine)
    if not files:
        raise SystemExit(f"{path} has no images in its {len(classes)} class folders")
    write_split(outputs, (1 if gray else 3, *size), labels, lambda i: read_image(files[i], size, gray), classes,
                test_every)


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
        command.add_argument("--force", action="store_true", help="replace the files that are there, all together")
    arguments = parser.parse_args()
    if arguments.test_every < 0 or arguments.test_every == 1:
        parser.error(f"--test-every {arguments.test_every}: must be 0 or at least 2, so that some are left to train on")
    if arguments.command == "folder" and min(arguments.size) < 1:
        parser.error(f"--size {arguments.size[0]} {arguments.size[1]}: must be at least 1")
    outputs = Outputs([Path(f"{arguments.out}-{name}.safetensors") for name in ("train", "test")], arguments.force)
    if arguments.command == "digits":
        need("numpy", "sklearn")
        pack_digits(outputs, arguments.test_every)
    else:
        need("numpy", "PIL")
        pack_folder(arguments.input, outputs, tuple(arguments.size), arguments.gray, arguments.test_every)


if __name__ == "__main__":
    main()
