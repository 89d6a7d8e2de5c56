"""Files that a tool writes and that belong together: an earlier set is refused, or replaced as a whole."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path


class Outputs:
    """The files of one run of a tool, written under temporary names until all of them are whole.

    What was held out of one data set must not lie beside the training data of another: it may hold the same
    samples. So every file that such a run could have written counts as part of the set, whether this run
    writes it or not.
    """

    def __init__(self, paths: list[Path], force: bool) -> None:
        self.paths = paths
        self.partial: dict[Path, Path] = {}  # in the order in which they appear
        there = [path for path in paths if path.exists() or path.is_symlink()]
        folders = [path for path in there if path.is_dir()]
        if folders or (there and not force):
            names = ", ".join(map(str, folders or there))
            verb = "is" if len(folders or there) == 1 else "are"
            rule = (f"{names} {verb} no file: choose another output" if folders else
                    f"{names} {verb} there already; files that belong together are replaced together or not at all: "
                    "choose another output, or give --force, which replaces or removes all of them")
            print(f"{Path(sys.argv[0]).name}: error: {rule}", file=sys.stderr)
            raise SystemExit(2)

    def __enter__(self) -> Outputs:
        return self

    def begin(self, path: Path) -> Path:
        """Where to write what becomes `path`: beside it, by a name with the same ending."""
        assert path in self.paths
        path.parent.mkdir(parents=True, exist_ok=True)
        return self.partial.setdefault(path, path.with_name(f"partial-{os.getpid()}.{path.name}"))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Removes the old set, then puts the new one in place: at no moment is there some of both."""
        try:
            if kind is None:
                for partial in self.partial.values():
                    sync(partial)
                for path in self.paths:
                    path.unlink(missing_ok=True)
                for folder in {path.parent for path in self.partial}:
                    sync(folder)  # gone for good before the first new file appears
                for path, partial in self.partial.items():
                    partial.replace(path)
        finally:
            for partial in self.partial.values():
                partial.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Returns when a file's bytes, or a folder's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not path.is_dir() or error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise  # some file systems cannot sync folders
    finally:
        os.close(descriptor)
