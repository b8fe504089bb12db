"""Places that call jitted functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xlaprof.recording.stacks import RawFrame

if TYPE_CHECKING:
    from .programs import Arguments


class Site:
    """A place that calls a jitted function."""

    __slots__ = (
        "arguments", "calls", "every", "frames", "fresh", "last", "name", "own", "path", "program", "ran", "skip",
        "stack", "uploads", "visits",
    )  # fmt: skip

    def __init__(self, program: int, name: str, frames: tuple[RawFrame, ...], stack: int, own: bool) -> None:
        self.program, self.name, self.frames, self.stack = program, name, frames, stack
        self.own = own  # a function of the program's, called at a line of the program
        self.arguments: Arguments | None = None  # those of its latest program, while they are looked at
        self.path: tuple[Any, ...] | None = None  # to the smallest result, within plain containers
        self.calls = self.visits = self.skip = self.last = self.ran = 0
        self.every = 1  # calls that are told as one
        self.fresh = False  # the call that goes on was compiled, and counted as a visit
        self.uploads = False  # it is given values of the host
