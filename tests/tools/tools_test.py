"""Tests of tools/*.py, run by tests/run.sh --peers: python tests/tools/tools_test.py."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors import safe_open

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/peers"))
from megatron_index import read_tokens  # noqa: E402


class ToolTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="tessera-tools-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_tool(self, tool: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, ROOT / "tools" / tool, *map(str, arguments)], capture_output=True,
                              text=True, timeout=120, check=False)

    def succeed(self, tool: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        result = self.run_tool(tool, *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def refuse(self, message: str, tool: str, *arguments: object) -> None:
        result = self.run_tool(tool, *arguments)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(message, result.stderr)
        self.assertNotIn("Traceback", result.stderr)


class MakePairs(ToolTest):
    def make(self, *arguments: object) -> Path:
        self.succeed("make_pairs.py", self.folder / "pairs", *arguments)
        return self.folder / "pairs"

    def test_every_sequence_there_is(self) -> None:
        # Of two values: 2 of length 1 and 4 of length 2.
        out = self.make("--count", 4, "--valid", 2, "--length", 1, 2, "--vocab-size", 5)
        ids = np.concatenate([read_tokens(f"{out}-source"), read_tokens(f"{out}-valid-source")])
        self.assertEqual(sorted(ids), 5 * [3] + 5 * [4])

    def test_an_earlier_set_is_replaced_as_a_whole(self) -> None:
        out = self.make("--count", 6, "--valid", 2, "--length", 3, 4)
        self.refuse(f"{out}-source.bin, {out}-source.idx", "make_pairs.py", out, "--valid", 0)
        self.make("--count", 6, "--valid", 0, "--length", 3, 4, "--seed", 2, "--force")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                         ["pairs-source.bin", "pairs-source.idx", "pairs-target.bin", "pairs-target.idx"])

    def test_more_than_there_are(self) -> None:
        self.refuse("there are 6 distinct sequences of 1 to 2 of 2 values", "make_pairs.py", self.folder / "pairs",
                    "--count", 5, "--valid", 2, "--length", 1, 2, "--vocab-size", 5)

    def test_ids_beyond_16_bits(self) -> None:
        for size, dtype in ((65536, np.uint16), (70000, np.int32)):
            out = self.make("--count", 5000, "--valid", 0, "--vocab-size", size, "--force")
            source, target = read_tokens(f"{out}-source"), read_tokens(f"{out}-target")
            self.assertEqual(source.dtype, dtype)
            self.assertGreaterEqual(source.min(), 3)
            self.assertGreater(source.max(), size - 100)
            self.assertLess(source.max(), size)
            self.assertEqual(sorted(source), sorted(target))
            self.assertFalse(Path(f"{out}-valid-source.bin").exists())

    def test_what_makes_no_sequences(self) -> None:
        for message, arguments in (
                ("--vocab-size 3: must be from 4", ("--vocab-size", 3)),
                ("--length 0 2: MIN must be", ("--length", 0, 2)),
                ("--length 5 4: MIN must be", ("--length", 5, 4)),
                ("--count 0 --valid 500: at least 1", ("--count", 0))):
            self.refuse(message, "make_pairs.py", self.folder / "pairs", *arguments)


class PackImages(ToolTest):
    def setUp(self) -> None:
        super().setUp()
        self.images = self.folder / "images"
        for name in ("a", "b", ".hidden"):
            (self.images / name).mkdir(parents=True)

    def save(self, name: str, pixels: np.ndarray) -> None:
        Image.fromarray(pixels).save(self.images / name)

    def pack(self, *arguments: object, name: str = "train") -> tuple[np.ndarray, np.ndarray, list[str]]:
        self.result = self.succeed("pack_images.py", "folder", self.images, self.folder / "out", *arguments)
        with safe_open(self.folder / f"out-{name}.safetensors", "np") as file:
            return file.get_tensor("images"), file.get_tensor("labels"), json.loads(file.metadata()["classes"])

    def test_colour_by_class_and_split(self) -> None:
        pixels = np.random.default_rng(1).integers(0, 256, (6, 4, 5, 3), dtype=np.uint8)
        for i in range(6):
            self.save(f"{'aabbbb'[i]}/{i}.png", pixels[i])
        images, labels, classes = self.pack("--size", 4, 5, "--test-every", 2)
        self.assertEqual((labels.tolist(), classes), ([0, 1, 1], ["a", "b"]))
        np.testing.assert_array_equal(images, pixels[[0, 2, 4]].transpose(0, 3, 1, 2))
        images, labels, _ = self.pack("--size", 4, 5, "--test-every", 2, "--force", name="test")
        self.assertEqual(labels.tolist(), [0, 1, 1])
        np.testing.assert_array_equal(images, pixels[[1, 3, 5]].transpose(0, 3, 1, 2))

    def test_an_earlier_set_is_replaced_as_a_whole(self) -> None:
        for i in range(4):
            self.save(f"a/{i}.png", np.full((2, 2), i, dtype=np.uint8))
        self.pack("--size", 2, 2, "--gray", "--test-every", 2)
        self.refuse("out-train.safetensors", "pack_images.py", "folder", self.images, self.folder / "out",
                    "--size", 2, 2, "--gray", "--test-every", 0)
        images, _, _ = self.pack("--size", 2, 2, "--gray", "--test-every", 0, "--force")
        self.assertEqual(len(images), 4)
        self.assertFalse((self.folder / "out-test.safetensors").exists())

    def test_files_that_are_no_images(self) -> None:
        self.save("a/1.png", np.full((2, 2), 7, dtype=np.uint8))
        (self.images / "a/.DS_Store").write_bytes(b"\0\0\0\1Bud1")
        (self.images / "a/notes.txt").write_text("not an image")
        (self.images / "b/deeper").mkdir()
        images, labels, _ = self.pack("--size", 2, 2, "--gray")
        self.assertEqual((images.tolist(), labels.tolist()), ([[[[7, 7], [7, 7]]]], [0]))
        self.assertIn("notes.txt: not an image", self.result.stderr)
        self.assertIn("deeper: not an image", self.result.stderr)
        self.assertIn("images/b, has no images", self.result.stderr)
        self.assertNotIn(".DS_Store", self.result.stderr)

    def test_a_damaged_image_leaves_no_file(self) -> None:
        self.save("a/1.png", np.random.default_rng(1).integers(0, 256, (64, 64), dtype=np.uint8))
        whole = (self.images / "a/1.png").read_bytes()
        (self.images / "a/2.png").write_bytes(whole[: len(whole) // 2])
        self.refuse("a/2.png: cannot be read as an image", "pack_images.py", "folder", self.images,
                    self.folder / "out", "--size", 2, 2)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["images"])

    def test_16_bits(self) -> None:
        shades = np.array([[0, 128, 257 * 100, 65535]], dtype=np.uint16)
        self.save("a/gray.png", shades)
        with Image.open(self.images / "a/gray.png") as image:
            self.assertIn(image.mode, ("I;16", "I;16B"))
        colour = np.stack([shades, shades[:, ::-1], shades], axis=-1)
        chunks = ((b"IHDR", struct.pack(">IIBBBBB", 4, 1, 16, 2, 0, 0, 0)),
                  (b"IDAT", zlib.compress(b"\0" + colour.astype(">u2").tobytes())), (b"IEND", b""))
        (self.images / "b/colour.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
            for kind, data in chunks))
        images, _, _ = self.pack("--size", 1, 4)
        self.assertEqual(images[0].tolist(), 3 * [[[0, 0, 100, 255]]])
        self.assertEqual(images[1].tolist(), [[[0, 0, 100, 255]], [[255, 100, 0, 0]], [[0, 0, 100, 255]]])

    def test_32_bits_are_refused(self) -> None:
        self.save("a/deep.tiff", np.full((2, 2), 0.5, dtype=np.float32))
        self.refuse("deep.tiff: has F pixels of 32 bits", "pack_images.py", "folder", self.images,
                    self.folder / "out", "--size", 2, 2)

    def test_a_split_that_leaves_nothing(self) -> None:
        self.refuse("--test-every 1: must be 0 or at least 2", "pack_images.py", "digits", self.folder / "out",
                    "--test-every", 1)

    def test_memory_does_not_grow_with_the_images(self) -> None:
        for i in range(40):
            self.save(f"a/{i}.png", np.full((2, 2), i, dtype=np.uint8))
        code = ("import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_DATA, (400 << 20, 400 << 20)); "
                "sys.argv = sys.argv[1:]; sys.path[0] = sys.argv[0].rpartition('/')[0]; "
                "runpy.run_path(sys.argv[0], run_name='__main__')")
        size = 2048  # 12 MiB an image, 480 MiB in all
        result = subprocess.run([sys.executable, "-c", code, ROOT / "tools/pack_images.py", "folder", self.images,
                                 self.folder / "out", "--size", str(size), str(size), "--test-every", "0"],
                                capture_output=True, text=True, timeout=120, check=False,
                                env={"OPENBLAS_NUM_THREADS": "1"})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertGreater((self.folder / "out-train.safetensors").stat().st_size, 480 << 20)

    def test_digits(self) -> None:
        self.succeed("pack_images.py", "digits", self.folder / "digits")
        with safe_open(self.folder / "digits-test.safetensors", "np") as file:
            self.assertEqual(file.get_tensor("images").shape, (355, 1, 8, 8))
            self.assertEqual(set(file.get_tensor("labels")), set(range(10)))


if __name__ == "__main__":
    unittest.main()
