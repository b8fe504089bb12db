"""A graph at fault, made smaller, as a program that runs alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from xlaprof.doctor.ladder import wait
from xlaprof.doctor.layers import Failure, Reproducer

_SMALLER = "import sys; sys.path[0] = {bin!r}; from xlaprof.doctor.smaller import main; main()"


def reproduce(failure: Failure, limit: float, tell: Callable[[float], None]) -> Reproducer | None:
    """Make the graph of ``failure`` smaller, for ``limit`` seconds at most; None where it could not be written down."""
    folder = Path(failure.graph)
    whole, smaller = folder / "whole.py", folder / "smaller.py"
    if not failure.graph or not whole.exists():
        return None
    began = time.monotonic()
    start = _SMALLER.format(bin=os.path.dirname(sys.executable))
    ended = _run(
        ["-c", start, str(whole), str(smaller), failure.place or "the program"], folder / "smaller.txt", limit, tell
    )
    remark = f"the search for a smaller one was ended after {limit:g} s" if ended is None else ""
    for file in (smaller, whole):
        if file.exists():
            left = max(limit - (time.monotonic() - began), limit / 4)
            ended = _run([str(file)], file.with_suffix(".txt"), left, tell)
            if ended or file is whole:
                fails: Literal["yes", "no", "not in time"] = (
                    "not in time" if ended is None else "yes" if ended else "no"
                )
                return Reproducer(
                    str(file), _operations(file), fails, remark or _why_not_smaller(file is whole, folder)
                )
    return None


def _why_not_smaller(whole: bool, folder: Path) -> str:
    if not whole:
        return ""
    said = [line.strip() for line in (folder / "smaller.txt").read_text(errors="replace").splitlines() if line.strip()]
    return f"nothing smaller was found ({said[-1][:200]})" if said else "nothing smaller was found"


def _run(arguments: Sequence[str], output: Path, limit: float, tell: Callable[[float], None]) -> int | None:
    """Run python with ``arguments``: its exit code, None if it was ended after ``limit`` seconds."""
    with open(output, "wb") as out:
        process = subprocess.Popen(
            [sys.executable, *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
        in_time = wait(process, time.monotonic() + limit, tell)
    return process.returncode if in_time else None


def _operations(file: Path) -> int:
    """Operations of the graph in a program that this package wrote."""
    body = file.read_text(encoding="utf-8").partition("def forward(")[2].partition("def load_args")[0]
    return len(re.findall(r"^\s+\w+ = [\w.]+\(", body, re.MULTILINE))
