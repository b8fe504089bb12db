"""Runs the programs of ``ptxla/`` here, and compares their counts with those of torch_xla 2.9."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import xlaprof.runtime as xr
from xlaprof import import_hook
from xlaprof.runtime import parity
from xlaprof.runtime.execution import upload
from xlaprof.runtime.tape import tapes

FOLDER = Path(__file__).parent / "ptxla"

#: the compared counters and numbers of samples (``CompileTime`` counts what ``UncachedCompile`` does, and is not
#: cleared by Dynamo)
COUNTED = (
    "CompileTime", "CachedCompile", "ExecuteTime", "TransferFromDeviceTime", "TransferToDeviceTime", "MarkStep",
)  # fmt: skip


class Counts(NamedTuple):
    """The counts of one run."""

    counted: dict[str, int]
    fallbacks: dict[str, int]

    def differences(self, other: Counts) -> dict[str, tuple[Any, Any]]:
        """Counter -> ours and the other's, where they differ."""
        found: dict[str, tuple[Any, Any]] = {
            name: (self.counted[name], other.counted[name])
            for name in COUNTED
            if self.counted[name] != other.counted[name]
        }
        if self.fallbacks != other.fallbacks:
            found["fallbacks"] = (self.fallbacks, other.fallbacks)
        return found


def names() -> list[str]:
    """The programs, each followed by its fixed version."""
    return sorted(path.stem for path in FOLDER.glob("*.py"))


def peer(name: str) -> Counts:
    """The counts of torch_xla 2.9."""
    story = json.loads((FOLDER / f"{name.removesuffix('_fixed')}.expected.json").read_text())
    counted = story["fixed_torch_xla" if name.endswith("_fixed") else "torch_xla"]
    return Counts({key: counted[key] for key in COUNTED}, counted["aten_fallbacks"])


def run(name: str, *, strict: bool) -> Counts:
    """The runtime's counts while the program runs as if in a new process."""
    return run_file(FOLDER / f"{name}.py", strict=strict)


def run_file(path: Path, *, strict: bool) -> Counts:
    """The same for any script."""
    import_hook.serve()
    arguments, sys.argv = sys.argv, [str(path)]
    try:
        with as_if_new(strict=strict), contextlib.redirect_stdout(io.StringIO()):
            runpy.run_path(str(path), run_name="__main__")
            return counts()
    finally:
        sys.argv = arguments


def counts() -> Counts:
    """The counts since the beginning of :func:`as_if_new`."""
    found, _ = xr.metrics.totals()
    fallbacks = {op: found[op] for op in xr.metrics.executed_fallback_ops()}
    return Counts({name: found.get(name, 0) for name in COUNTED}, fallbacks)


@contextlib.contextmanager
def as_if_new(*, strict: bool = False) -> Iterator[None]:
    """The runtime as a new process has it: nothing recorded, compiled, on the device or counted."""
    _forget()
    parity.set_strict(strict)
    xr.metrics.clear_all()
    try:
        yield
    finally:
        parity.set_strict(False)
        _forget()


def _forget() -> None:
    gc.collect()
    xr.sync(wait=True)
    if (dynamo := sys.modules.get("torch._dynamo")) is not None:  # seconds to import
        dynamo.reset()
    xr.clear_compile_cache()
    upload.forget()
    for tape in tapes.existing():
        tape.forget()
