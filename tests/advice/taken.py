"""A piece of advice that is taken: the program as found, and the same program with the advice followed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

import xlaprof.runtime as xr
from tests.recording import Recorded, recording
from tests.zoo.programs import as_if_new
from xlaprof.analysis.model import Finding
from xlaprof.analysis.run import Run
from xlaprof.events import AnyEvent, Compile, Event, Execute, Fallback, TransferFromDevice
from xlaprof.runtime.instruments import retainers

STEPS = 16
Program = Callable[[], object]


class Case(NamedTuple):
    """``words``: of the advice, as its source has them between what it fills in."""

    name: str
    kind: str
    before: Program
    words: str
    after: Program
    counts: tuple[type[Event], ...] | None = None  # what it promises to make fewer; None: what its kind does
    also: tuple[str, ...] = ()  # further words of the advice, filled in
    strict: bool = False  # the mistake is one by PyTorch/XLA's rules alone


#: what a fix of each kind makes fewer
_PROMISED: dict[str, tuple[type[Event], ...]] = {
    "recompile": (Compile,),
    "excess_barriers": (Execute,),
    "transfer": (TransferFromDevice,),
    "fallback": (Fallback, TransferFromDevice),
}


class Taken(NamedTuple):
    """Both programs' recordings."""

    before: Recorded
    after: Recorded
    found: Finding
    left: tuple[Finding, ...]  # in the second


def findings(events: list[AnyEvent]) -> tuple[Finding, ...]:
    return Run().feed_all(events).report("run.log").findings


def observe(program: Program, path: Path, *, strict: bool = False) -> Recorded:
    """Run a program as a new process would."""
    with as_if_new(strict=strict):
        torch.manual_seed(0)
        retainers._spent_ns = 0  # a process looks for names for half a second in all
        with recording(path) as recorded:
            program()
            xr.sync(wait=True)
        return recorded()


def take(case: Case, folder: Path) -> Taken:
    """Run both programs; the first has the finding with the advice, the second has it no more, and less of its kind."""
    before, after = (
        observe(program, folder / f"{name}.log", strict=case.strict)
        for name, program in (("before", case.before), ("after", case.after))
    )
    of_kind = [one for one in findings(before.events) if one.kind == case.kind]
    advised = [one for one in of_kind if all(words in one.advice for words in (case.words, *case.also))]
    assert advised, [one.advice for one in of_kind]
    left = findings(after.events)
    assert not (still := [one.cause for one in left if one.kind == case.kind]), still
    for counted in _PROMISED.get(case.kind, ()) if case.counts is None else case.counts:
        if before.of(counted):
            assert len(after.of(counted)) < len(before.of(counted)), counted
    return Taken(before, after, advised[0], left)
