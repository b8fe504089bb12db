"""Tells XProf that a run trains.

XProf shows step times and their breakdown on its overview for trainings alone, and takes for a training what has a
program with a gradient in it. A recording has no programs of XLA. So one is made up for XProf to find the gradient in:
a constant, under a name that says what whoever looks at XProf's graphs needs to know.
"""

from __future__ import annotations

from collections.abc import Sequence

from xlaprof.analysis.run import Run
from xlaprof.export import wire
from xlaprof.export.timeline import StepSpan
from xlaprof.export.xplane import Plane

_NAME = "a recording has no graphs"
_GRADIENT = b"transpose(jvp(training))"  # as JAX names the operations of a backward pass
_ID = 2**31 - 2  # of no program
_F32 = 11


def trains(settled: Run, main: Sequence[StepSpan]) -> bool:
    """Whether graphs of the run were seen to train, or its steps are called after it."""
    return settled.trains or any(step.name.lower().startswith("train") for step in main[:1])


def programs_plane(id: int) -> Plane:
    """The plane in which XProf looks for programs."""
    plane = Plane(id, "/host:metadata")
    plane.name(f"{_NAME}({_ID})", stats={"Hlo Proto": _program()}, key=_ID)
    return plane


def _program() -> bytes:
    """An ``HloProto``: a module with one computation, which has one instruction."""
    prefixed = wire.prefixed
    shape = _number(2, _F32) + prefixed(5, b"")
    result = prefixed(2, shape)
    constant = prefixed(1, b"none") + prefixed(2, b"constant") + prefixed(3, shape)
    constant += prefixed(7, prefixed(2, _GRADIENT))
    constant += prefixed(8, prefixed(1, shape) + prefixed(8, bytes(4))) + _number(35, 1)
    main = prefixed(1, b"main") + prefixed(2, constant) + prefixed(4, result) + _number(5, 1) + _number(6, 1)
    module = (
        prefixed(1, _NAME.encode()) + prefixed(2, b"main") + prefixed(3, main) + prefixed(4, result) + _number(6, 1)
    )
    return prefixed(1, module)


def _number(field: int, value: int) -> bytes:
    return wire.key(field, wire.VARINT) + wire.varint(value)
