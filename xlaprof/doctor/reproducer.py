"""A graph at fault, made smaller, as a program that runs alone."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from xlaprof.doctor.ladder import python, start
from xlaprof.doctor.layers import Failure, Reproducer


def reproduce(failure: Failure, limit: float, tell: Callable[[float], None]) -> Reproducer | None:
    """Make the graph of ``failure`` smaller, for ``limit`` seconds at most; None where it could not be written down."""
    folder = Path(failure.graph)
    whole, smaller = folder / "whole.py", folder / "smaller.py"
    if not failure.graph or not whole.exists():
        return None
    began = time.monotonic()
    arguments = [*start("smaller"), str(whole), str(smaller), failure.place or "the program"]
    ended = python(arguments, folder / "smaller.txt", limit, tell)
    remark = f"the search for a smaller one was ended after {limit:g} s" if ended is None else ""
    for file in (smaller, whole):
        if file.exists():
            left = max(limit - (time.monotonic() - began), limit / 4)
            ended = python([str(file)], file.with_suffix(".txt"), left, tell)
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


def _operations(file: Path) -> int:
    """Operations of the graph in a program that this package wrote."""
    body = file.read_text(encoding="utf-8").partition("def forward(")[2].partition("def load_args")[0]
    return len(re.findall(r"^\s+\w+ = [\w.]+\(", body, re.MULTILINE))
