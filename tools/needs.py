"""Python packages that a tool cannot do without: their absence is told with the commands that help."""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = ("deps/tools", "deps/peers")  # launch/setup.sh --tools, --peers


def need(*modules: str) -> None:
    """Ends the tool with exit code 1 if this Python lacks one of the modules."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if not missing:
        return
    there = [name for name in ENVIRONMENTS if (ROOT / name / "bin/python").exists()]
    tool, *arguments = sys.argv
    command = [here(f"{(there or ENVIRONMENTS)[0]}/bin/python"), tool, *arguments]
    install = "" if there else f"  {here('launch/setup.sh')} --tools\n"
    raise SystemExit(f"{Path(tool).name}: error: {sys.executable} has no {', '.join(missing)}; run\n{install}"
                     f"  {shlex.join(command)}")


def here(path: str) -> str:
    """A path of the repository as it reads from the working folder."""
    return os.path.relpath(ROOT / path)
