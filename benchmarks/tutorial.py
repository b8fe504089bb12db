"""Run docs/tutorial.md as its reader does, and write what its commands print into it.

    python benchmarks/tutorial.py [--check]

The page's program is saved, each diff changes it, each command runs, 80 columns wide, in one folder. ``--check`` writes
nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "tutorial.md"
_BLOCK = re.compile(r"```(python|diff|console)\n(.*?)```\n", re.DOTALL)


def run(text: str) -> str:
    """The page ``text`` with the outputs of its commands. Raises ``ValueError`` for a diff that does not apply."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "tutorial")  # the end of its name is in paths that are shortened
        folder.mkdir()
        return _BLOCK.sub(lambda block: f"```{block[1]}\n{_done(block[1], block[2], folder)}```\n", text)


def _done(kind: str, block: str, folder: Path) -> str:
    program = folder / "train.py"
    if kind == "python":
        program.write_text(block)
    elif kind == "diff":
        old = "".join(line[1:] for line in block.splitlines(keepends=True) if not line.startswith("+"))
        new = "".join(line[1:] for line in block.splitlines(keepends=True) if not line.startswith("-"))
        if program.read_text().count(old) != 1:
            raise ValueError(f"not in the program: {old}")
        program.write_text(program.read_text().replace(old, new))
    else:
        commands = [line for line in block.splitlines() if line.startswith("$ xlaprof ")]
        return "".join(f"{command}\n{_printed(command, folder)}" for command in commands)
    return block


def _printed(command: str, folder: Path) -> str:
    """Standard output and error of a command, and its exit code unless it is 0."""
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(command)[1:]],
        cwd=folder,
        env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "XLAPROF_CACHE_DIR": "off"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    code = f"exit code {done.returncode}\n" if done.returncode else ""
    here = f"{os.path.realpath(folder)}{os.sep}"
    return done.stdout.replace(here, "").replace(f"{folder}{os.sep}", "").strip("\n") + "\n" * bool(done.stdout) + code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="print the page, write nothing")
    args = parser.parse_args()
    page = run(PAGE.read_text())
    if args.check:
        print(page)
    else:
        PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
