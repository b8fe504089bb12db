"""Runs the program under each layer, in a process of its own, and reads what that process wrote."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from xlaprof.doctor.layers import Failure, Layer, Seen, is_of_memory

PLAIN = "plain"  # the folder of the run without torch.compile
_LOOKS_S = 0.1  # between two looks at a process


def climb(layer: Layer, folder: Path, program: Sequence[str], limit: float, tell: Callable[[float], None]) -> Seen:
    """Run ``program`` (its command line after ``python``) under ``layer`` for ``limit`` seconds at most.

    ``tell`` is called with the seconds so far. What is written meanwhile is in ``folder``, which is made.
    """
    folder.mkdir(mode=0o700, parents=True)
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "XLAPROF_CACHE_DIR": "off"}
    arguments = [*start("inside"), str(folder), layer.name, *program]
    began = time.monotonic()
    code = python(arguments, folder / "output.txt", limit, tell, environment)
    took = time.monotonic() - began
    if code is None:
        return read(layer.name, folder, took, -signal.SIGKILL, limit)
    return read(layer.name, folder, took, code, None)


def start(name: str) -> list[str]:
    """The arguments of python that call ``main()`` of a module of this package, and let the program's modules alone."""
    folder = os.path.dirname(sys.executable)  # in the place of the current one, which may have a torch.py
    return ["-c", f"import sys; sys.path[0] = {folder!r}; from {__package__}.{name} import main; main()"]


def python(
    arguments: Sequence[str],
    output: Path,
    limit: float,
    tell: Callable[[float], None],
    environment: Mapping[str, str] | None = None,
) -> int | None:
    """Run python with ``arguments``: its exit code, None if it was ended after ``limit`` seconds."""
    with open(output, "wb") as out:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=environment,
            start_new_session=True,
        )
        in_time = _wait(process, limit, tell)
    return process.returncode if in_time else None


def _wait(process: subprocess.Popen[bytes], limit: float, tell: Callable[[float], None]) -> bool:
    """Wait for its end; False: it was ended, with all that it had started."""
    began = time.monotonic()
    try:
        while time.monotonic() < began + limit:
            try:
                process.wait(_LOOKS_S)
                return True
            except subprocess.TimeoutExpired:
                tell(time.monotonic() - began)
        return False
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def read(name: str, folder: Path, took: float, code: int, limit: float | None) -> Seen:
    """What the process of layer ``name`` wrote into ``folder``; ``limit``: it was ended after so many seconds."""
    calls: list[float] = []
    graphs: list[dict[str, Any]] = []
    failures: list[Failure] = []
    end: dict[str, Any] = {}
    for kind, value in _lines(folder / "seen.jsonl"):
        if kind == "call":
            calls.append(value)
        elif kind == "graph":
            graphs.append(value)
        elif kind == "failure":
            failures.append(msgspec.convert(value, Failure))
        elif kind == "end":
            end = value
    if end and not end["code"]:  # what a graph failed with, the program could do without
        failures = [failure for failure in failures if failure.kind == "numbers"]
    elif limit is not None and not end:
        failures.append(Failure("time", f"it was ended after {limit:g} s"))
    else:
        failures += _how_it_ended(code, end, folder, known=failures)
    checked = [one for one in graphs if not one["remark"]]
    remarks = sorted({one["remark"] for one in graphs if one["remark"]})
    wrong = any(failure.kind == "numbers" for failure in failures)
    return Seen(
        layer=name,
        took=end.get("took", took),
        calls=tuple(calls),
        compiling=sum(one["compiling"] for one in graphs),
        graphs=len(graphs),
        breaks=end.get("breaks", 0),
        checked=len(checked),
        unchecked=tuple(remarks),
        peak=end.get("peak", 0),
        failures=tuple(failures),
        numbers="wrong" if wrong else "right" if checked and len(checked) == len(graphs) else "unknown",
        output=str(folder / "output.txt"),
    )


def _lines(file: Path) -> list[tuple[str, Any]]:
    """The lines of a file that a killed process may have left unfinished."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    found = []
    for line in text.splitlines():
        try:
            found += json.loads(line).items()
        except ValueError:
            break
    return found


def _how_it_ended(code: int, end: dict[str, Any], folder: Path, known: Sequence[Failure]) -> list[Failure]:
    """Why the process did not end well, unless that is ``known`` already."""
    if any(failure.kind in ("crash", "memory") for failure in known):
        return []
    if end:
        return [Failure("memory" if is_of_memory(end["error"]) else "crash", end["error"], end["place"], whole=True)]
    if code == -signal.SIGKILL:
        return [Failure("memory", "it was killed, as systems do where memory runs out")]
    if code < 0:
        return [Failure("crash", f"it was ended by {signal.Signals(-code).name}")]
    return [Failure("crash", _last_line(folder / "output.txt") or f"exit code {code}")]


def _last_line(file: Path) -> str:
    lines = [line.strip() for line in file.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
