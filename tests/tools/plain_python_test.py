"""Tests of tools/*.py on a Python that has no package: python3 -S tests/tools/plain_python_test.py."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import needs  # noqa: E402
from outputs import Outputs  # noqa: E402


class TestWithFolder(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="tessera-tools-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)


class Tools(TestWithFolder):
    """Each tool as a command; -S keeps installed packages out of its sight."""

    def run_tool(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run([sys.executable, "-S", *arguments], cwd=ROOT, capture_output=True, text=True,
                              timeout=60, check=False, env=environment)

    def test_says_what_to_install_and_to_run(self) -> None:
        for arguments, modules in ((["tools/make_pairs.py", str(self.folder / "a b")], "numpy"),
                                   (["tools/pack_images.py", "digits", str(self.folder / "a")], "numpy, sklearn"),
                                   (["tools/pack_images.py", "folder", str(self.folder), str(self.folder / "a"),
                                     "--size", "2", "2"], "numpy, PIL")):
            result = self.run_tool(*arguments)
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertIn(f"has no {modules}; run\n", result.stderr)
            self.assertRegex(result.stderr, r"\n  deps/(tools|peers)/bin/python tools/")
            self.assertNotIn("Traceback", result.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_help_needs_no_package(self) -> None:
        for arguments in (["tools/make_pairs.py"], ["tools/pack_images.py"], ["tools/pack_images.py", "folder"]):
            result = self.run_tool(*arguments, "--help")
            self.assertEqual(result.returncode, 0, result.stderr)

    def test_refuses_an_earlier_set_first(self) -> None:
        (self.folder / "p-valid-target.idx").touch()
        result = self.run_tool("tools/make_pairs.py", str(self.folder / "p"))
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn(f"{self.folder}/p-valid-target.idx is there already", result.stderr)
        (self.folder / "d-test.safetensors").touch()
        result = self.run_tool("tools/pack_images.py", "digits", str(self.folder / "d"))
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("--force", result.stderr)


class Needs(TestWithFolder):
    def message(self, root: Path) -> str:
        with (mock.patch.object(needs, "ROOT", root), mock.patch.object(sys, "argv", ["tools/x.py", "a b"]),
              self.assertRaises(SystemExit) as caught):
            needs.need("sys", "no_such_package")
        return str(caught.exception)

    def test_names_the_commands(self) -> None:
        needs.need("sys", "json")
        command = "bin/python tools/x.py 'a b'"
        here = os.path.relpath(self.folder)
        self.assertIn(f"has no no_such_package; run\n  {here}/launch/setup.sh --tools\n  {here}/deps/tools/{command}",
                      self.message(self.folder))
        python = self.folder / "deps/peers/bin/python"  # is there: nothing needs to be installed
        python.parent.mkdir(parents=True)
        python.touch()
        self.assertIn(f"has no no_such_package; run\n  {here}/deps/peers/{command}", self.message(self.folder))


class OutputsTest(TestWithFolder):
    def setUp(self) -> None:
        super().setUp()
        self.paths = [self.folder / name for name in ("train", "valid")]

    def write(self, text: str, paths: list[Path], force: bool = True) -> None:
        with Outputs(self.paths, force) as outputs:
            for path in paths:
                outputs.begin(path).write_text(text)

    def contents(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.folder.iterdir()}

    def refused(self, force: bool = False) -> None:
        with mock.patch("sys.stderr"), self.assertRaises(SystemExit) as caught:
            Outputs(self.paths, force)
        self.assertEqual(caught.exception.code, 2)

    def test_what_is_not_written_again_goes(self) -> None:
        self.write("old", self.paths, force=False)
        self.refused()
        self.write("new", self.paths[:1])
        self.assertEqual(self.contents(), {"train": "new"})
        self.paths[0].unlink()
        self.paths[1].mkdir()
        self.refused(force=True)

    def test_a_failure_before_the_end_changes_nothing(self) -> None:
        self.write("old", self.paths)
        with self.assertRaises(ZeroDivisionError), Outputs(self.paths, True) as outputs:
            outputs.begin(self.paths[0]).write_text("new")
            1 / 0
        self.assertEqual(self.contents(), {"train": "old", "valid": "old"})

    def test_a_crash_leaves_no_files_of_two_sets(self) -> None:
        class Crash(BaseException):
            pass

        for written in (self.paths, self.paths[:1]):
            for last in range(8):
                self.write("old", self.paths)
                calls = iter(range(100))

                def stop(original, *arguments, **keywords):
                    if next(calls) == last:
                        raise Crash
                    return original(*arguments, **keywords)

                unlink, replace = Path.unlink, Path.replace
                with (mock.patch.object(Path, "unlink", lambda *a, **k: stop(unlink, *a, **k)),
                      mock.patch.object(Path, "replace", lambda *a, **k: stop(replace, *a, **k))):
                    try:
                        self.write("new", written)
                    except Crash:
                        pass
                left = {text for name, text in self.contents().items() if not name.startswith("partial-")}
                self.assertLessEqual(len(left), 1, (written, last))
                for path in self.folder.iterdir():
                    path.unlink()


if __name__ == "__main__":
    unittest.main()
