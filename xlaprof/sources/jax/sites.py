"""Places that call jitted functions, and when what they call ended, where the thread that waited was late.

Who waits for the device learns of the end only once it has the interpreter's lock. Where the main thread runs Python
meanwhile it gets that 5 ms later (``sys.getswitchinterval()``), or after a copy that keeps the lock: on a GPU, whose
programs take a millisecond, the device would seem busy for several times as long. Two things tell how late it was:

* how often the thread blocked, by the kernel's count: once for the device; each further time is a wait for the lock,
  which ends after one interval, or sooner, so the number of these gives the end to within one interval;
* how long the program takes when nothing is late. The watcher sees that wherever the host waits too, or sleeps. Where
  it never does, the call itself stays for the end, for the first few of a place, 3 ms at most.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from xlaprof.recording.stacks import RawFrame

if TYPE_CHECKING:
    from .arguments import Arguments

try:
    from resource import RUSAGE_THREAD, getrusage
except ImportError:  # not on this system: an end is taken as it is seen

    def switches() -> int:
        """How often this thread has blocked; always 0 where the system does not say it."""
        return 0

else:

    def switches() -> int:
        """How often this thread has blocked; always 0 where the system does not say it."""
        return getrusage(RUSAGE_THREAD).ru_nvcsw


_LATE_NS = 1_000_000  # a program seen to have ended so long after its call may have ended long before
_STAYS_NS = 3_000_000  # a call waits no longer for the end of its program,
_TIMES = 3  # and no more often at a place
_LENGTHS = 15


class Lengths:
    """How long the program of one place runs. Nanoseconds."""

    __slots__ = ("_seen", "stays")

    def __init__(self) -> None:
        self._seen: deque[int] = deque(maxlen=_LENGTHS)
        self.stays = -1  # how many calls are still to stay for the end; below 0: nothing asks for it

    @property
    def usual(self) -> int:
        """0: not known."""
        return sorted(self._seen)[len(self._seen) // 2] if self._seen else 0

    def stay(self, token: Any, begun: int, now: Callable[[], int] = perf_counter_ns) -> int:
        """Wait in the call for the end of its program, which nothing runs before; 0 where that takes too long."""
        self.stays -= 1
        until = begun + _STAYS_NS
        while not token.is_ready():
            if now() > until:
                return 0
        end = now()
        self._seen.append(end - begun)
        return end

    def ended(self, start: int, seen: int, late: bool, blocked: int, alone: bool = True) -> int:
        """The end of a program that ran from ``start``, and was seen to have ended at ``seen``.

        ``late``: it had ended before anybody waited. ``blocked``: how often the thread that waited blocked, which is
        once for the device. ``alone``: this is the only program of the place that it stands for.
        """
        interval = round(sys.getswitchinterval() * 1e9)
        locked = max(0, blocked - 1)
        if not late and not locked:
            if alone and seen > start:
                self._seen.append(seen - start)
            return max(start, seen)
        most = seen if late else seen - (locked - 1) * interval
        least = start if late else seen - locked * interval
        if late and self.stays < 0 and not self._seen and seen - start > _LATE_NS:
            self.stays = _TIMES
        usual = self.usual
        return max(start, min(most, max(least, start + usual)) if usual else most)


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
        "arguments", "at", "calls", "code", "every", "frames", "fresh", "fun", "given_up", "jaxpr", "last", "lengths",
        "name", "owed", "own", "path", "program", "ran", "runs", "sent", "skip", "stack", "then", "token", "told",
        "uploads", "visits",
    )  # fmt: skip

    def __init__(self, program: int, name: str, frames: tuple[RawFrame, ...], stack: int, own: bool) -> None:
        self.program, self.name, self.frames, self.stack = program, name, frames, stack
        self.own = own  # a function of the program's, called at a line of the program
        self.then = self  # the site of the call that came after the latest one here
        #: the latest call: the function, held only while calls come quickly, the code that calls it, and where in it
        self.fun: Any = None
        self.code: CodeType | None = None
        self.at = -1
        self.arguments: Arguments | None = None  # those of its latest program, while they are looked at
        self.jaxpr: Any = None  # of the program that its call has just made, until that ran
        self.path: tuple[Any, ...] | None = None  # to the smallest result, within plain containers
        self.token: weakref.ref[Any] | None = None  # that result of the latest call
        self.given_up = set[tuple[Any, ...] | None]()  # such paths, to results that a later call was given for good
        self.calls = self.visits = self.skip = self.last = self.ran = self.told = 0
        self.every = 1  # calls that are told as one
        self.owed = 0  # calls that were counted, and are told with the next
        self.fresh = False  # the call that goes on was compiled, and counted as a visit
        self.uploads = False  # it is given values of the host
        self.runs: deque[int] = deque(maxlen=_RUNS)  # ns of the latest, uploads of the host's values and all
        self.lengths = Lengths()
        self.sent = NOTHING  # what of them was found at the last look

    @property
    def skipped(self) -> int:
        """Calls since the last that was told."""
        return max(0, self.every - 1 - self.skip)

    def look_after_token(self) -> None:
        """Another result is to be waited for where that of the latest call was given to a later one for good."""
        before = None if self.token is None else self.token()
        if before is not None and before.is_deleted():
            self.given_up.add(self.path)
            self.path = None

    def leave_off(self) -> None:
        """The next calls may be of another program, with other arguments: they are looked at, and told, one by one."""
        self.owed += self.skipped
        self.calls += self.skipped
        self.every, self.skip, self.told = 1, 0, 0


class Places:
    """The site of each call: by ids of the function and of the code that calls it, and the instruction.

    Code objects are held, for a hash of one takes microseconds. A function is held by its site only where calls are
    told together, and until :meth:`let_go`: it is compared by ``is`` there, which costs a tenth of what an id does.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._sites: dict[tuple[int, int, int], Site] = {}
        self._codes: dict[int, CodeType] = {}
        self._quick: set[Site] = set()  # those that hold their function

    def find(self, fun: Any, frame: FrameType) -> Site | None:
        code, at = frame.f_code, frame.f_lasti
        site = self._sites.get((id(fun), id(code), at))
        if site is not None and site.skip:
            site.fun, site.code, site.at = fun, code, at
            self._quick.add(site)
        return site

    def found(self, fun: Any, frame: FrameType) -> Site | None:
        """The same, where the frame is not that of the call: one further out."""
        return self._sites.get((id(fun), id(frame.f_code), frame.f_lasti))

    def put(self, fun: Any, frame: FrameType, site: Site) -> None:
        if len(self._sites) >= self._most:
            self._sites.clear()
            self._codes.clear()
        code = frame.f_code
        self._codes[id(code)] = code
        self._sites[id(fun), id(code), frame.f_lasti] = site

    def let_go(self) -> None:
        """No function is held any more. In any thread: a call that comes meanwhile is looked up."""
        while self._quick:
            self._quick.pop().fun = None

    def clear(self) -> None:
        self.let_go()
        self._sites.clear()
