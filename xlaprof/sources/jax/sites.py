"""Places that call jitted functions."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from xlaprof.recording.stacks import RawFrame

if TYPE_CHECKING:
    from .programs import Arguments


class Sent(NamedTuple):
    """Values of the host among the arguments of a call: those that come again in each.

    An upload keeps the caller for a while, and the device, which needs what it brings, until it is there.
    """

    size: int = 0  # bytes
    arrays: int = 0
    ns: tuple[float, float] = (0.0, 0.0)  # that their upload takes: of the caller, and afterwards
    each: tuple[float, float] = (0.0, 0.0)  # for a byte of what is new
    what: int = 0  # Text id: the largest of those that come again


NOTHING = Sent()
_RUNS = 9


class Site:
    """A place that calls a jitted function."""

    __slots__ = (
        "arguments", "calls", "every", "frames", "fresh", "last", "name", "own", "path", "program", "ran", "runs",
        "sent", "skip", "stack", "told", "uploads", "visits",
    )  # fmt: skip

    def __init__(self, program: int, name: str, frames: tuple[RawFrame, ...], stack: int, own: bool) -> None:
        self.program, self.name, self.frames, self.stack = program, name, frames, stack
        self.own = own  # a function of the program's, called at a line of the program
        self.arguments: Arguments | None = None  # those of its latest program, while they are looked at
        self.path: tuple[Any, ...] | None = None  # to the smallest result, within plain containers
        self.calls = self.visits = self.skip = self.last = self.ran = self.told = 0
        self.every = 1  # calls that are told as one
        self.fresh = False  # the call that goes on was compiled, and counted as a visit
        self.uploads = False  # it is given values of the host
        self.runs: deque[int] = deque(maxlen=_RUNS)  # ns of the latest, uploads of the host's values and all
        self.sent = NOTHING  # what of them was found at the last look
