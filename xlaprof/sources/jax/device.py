"""When the device was busy: each call of a jitted function, and a watcher that waits for its end.

JAX has one slot for a function that it calls after a call that found its program. Ours notes the moment and hands one
of the results, the smallest, to the watcher's thread, which waits until it is there. Calls that come faster than
:data:`APART_NS` are told together, so that a call costs less than a microsecond on average however fast they come.
What XLA's CPU client runs within the call itself, as it does small programs, has no length that could be seen; but
where a program calls Python, it ran from the first of these calls on.
"""

from __future__ import annotations

import functools
import itertools
import queue
import sys
import threading
import weakref
from collections.abc import Callable
from threading import get_ident
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from xlaprof import events
from xlaprof.errors import warn
from xlaprof.recording import recorder, stacks
from xlaprof.recording.stack_sampler import StackSampler, Target
from xlaprof.recording.stacks import RawFrame

from . import internals, programs
from .arguments import Arguments
from .sites import Places, Site, switches
from .texts import Texts
from .uploads import NOT_SENT, Sending, Uploads

if TYPE_CHECKING:
    from xlaprof.recording.recorder import Recorder

    from .steps import Steps

APART_NS = 500_000  # calls further apart than this are told one by one
_TOGETHER = 64  # calls told as one, at most
_SITES = 1_024  # places and functions kept apart
_WAITING = 256  # results that wait for the watcher: further calls are told with the next
_ARGUMENTS_EVERY = 16  # calls between two looks at the arguments of a place that uploaded nothing so far
_OUTSIDE_NS = 10_000_000_000  # between two counts of operations outside of jitted functions
_DEEPEST = 100  # frames of JAX's above a line of the program


#: a call and one of its results: where, when it was dispatched, for how many, and what was on its way to the device
_Run = tuple[Site, int, Any, int, Sending]


class Device:
    """Attached to JAX for one recording."""

    def __init__(
        self,
        rec: Recorder,
        package: str,
        announce: Callable[[int], None],
        steps: Steps,
        texts: Texts,
        checks: Callable[[Callable[..., None], tuple[Any, ...]], None],
        called_back: Callable[[], int],
    ) -> None:
        """``checks``: calls JAX's own check of what a call returned. ``called_back``: when a program first called
        Python, since it was asked the last time."""
        self._checks, self._called_back = checks, called_back
        self._checked: dict[Any, Any] = {}  # such a check -> what calls it
        self._rec, self._package, self._announce, self._steps = rec, package, announce, steps
        self._texts = texts
        self._places = Places(_SITES)
        self._known: dict[tuple[str, int], Site] = {}  # by name of the function and stack of the line
        self._seq, self._numbers = itertools.count(1), itertools.count(1)
        self._lines: set[int] = set()  # Stack ids of lines that call programs
        self._handed: queue.SimpleQueue[_Run | Callable[[], None] | None] = queue.SimpleQueue()
        self._held: set[int] = set()  # ids of results that only wait for the watcher, for all that we know
        self._asked: weakref.WeakSet[Any] = weakref.WeakSet()  # programs that XLA was asked about
        self._told: weakref.WeakSet[Any] = weakref.WeakSet()  # whose texts were
        self._sampler = StackSampler(rec, emit=self._sampled)
        self._last_end = 0
        self._outside_at = perf_counter_ns()
        self._main: tuple[int, int, int, tuple[RawFrame, ...]] = (get_ident(), rec.thread(), 0, ())
        self._main_ident = threading.main_thread().ident or 0
        self._array = internals.array_class()
        self._announced = False
        self._broken = False
        self._uploads = Uploads(rec, package, announce, self._handed.put)
        self._hook = self._hooked()
        self._inside: dict[str, bool] = {}  # file name of code -> whether it is JAX's own
        self._watcher: threading.Thread | None = None
        self._undo: Callable[[], None] = lambda: None

    def attach(self) -> bool:
        """False where this JAX has no such slot."""
        if internals.post_hook() is None:
            return False
        self._watcher = threading.Thread(target=self._watch, name="xlaprof jax watcher", daemon=True)
        self._watcher.start()
        self._uploads.attach()
        self.ensure()
        slow = internals.executions()
        theirs = None if slow is None else vars(slow).get("__call__")
        if theirs is not None:
            self._undo = functools.partial(setattr, slow, "__call__", theirs)
            slow.__call__ = self._executing(theirs)
        return True

    def detach(self) -> None:
        slot = internals.post_hook()
        if slot is not None:
            for present, put in ((slot.get_global(), slot.set_global), (slot.get_local(), slot.set_local)):
                if (theirs := self._given_back(present)) is not present:
                    put(theirs)
        self._undo()
        self._uploads.detach()
        if self._watcher is not None:
            self._handed.put(None)
            self._watcher.join(timeout=10.0)
        self._sampler.close()
        self._tell_outside()
        for site in self._known.values():
            self._tell_arguments(site)
            site.leave_off()
            if site.owed:  # whatever their programs took is over
                self._ran(site, site.last, site.last, 0, site.owed)
        self._places.clear()

    def each_period(self) -> None:
        self._places.let_go()

    # -- in the program's threads: a call has found its program ------------------------------------------------

    def _hooked(self, depth: int = 1) -> Callable[[Any, Any, Any, Any], None]:
        """What JAX calls, from ``depth`` frames further out. A closure: it is on the program's hot path.

        Most calls follow the one that they followed before. To compare them with it takes a third of what it takes to
        look them up.
        """
        here, find, tell = sys._getframe, self._find, self._tell
        last = Site(0, "", (), 0, False)

        def called(fun: Any, args: Any, kwargs: Any, out: Any) -> None:
            nonlocal last
            frame = here(depth)
            site = last.then
            try:
                if site.fun is not fun or site.at != frame.f_lasti or site.code is not frame.f_code:
                    site = last.then = find(fun, frame)
                last = site
                if site.skip:
                    site.skip -= 1
                    return
                tell(site, fun, args, kwargs, out)
            except Exception as error:  # nothing may be raised into the program
                if not self._broken:
                    self._broken = True
                    warn(f"calls of jitted functions are not observed any more: {type(error).__name__}: {error}")

        return called

    def _find(self, fun: Any, frame: FrameType) -> Site:
        """The site of a call that JAX itself may have made, as it does for operations outside of jitted functions."""
        if site := self._places.find(fun, frame):
            return site
        inside, at = self._inside, frame
        for _ in range(_DEEPEST):
            file = at.f_code.co_filename
            own = inside.get(file)
            if own is None:
                own = inside[file] = file.startswith(self._package)
            if not own or at.f_back is None:
                break
            at = at.f_back
        return self._places.found(fun, at) or self._new(fun, at)

    def _new(self, fun: Any, frame: FrameType) -> Site:
        rec = self._rec
        if recorder.active is rec and not internals.is_ours(stacks.OWN, self._package):
            frames = stacks.user_frames()
            own = self.is_own(getattr(fun, "__wrapped__", None))
            site = self._site(str(getattr(fun, "__name__", "")), frames, rec.stack(frames), own)
        else:
            site = Site(0, "", (), 0, False)  # the runtime's, which tells of it itself
        self._places.put(fun, frame, site)
        return site

    def is_own(self, fun: Any) -> bool:
        """Whether this is no operation of JAX's: a function of the program, or of a library as flax that jits one."""
        code = getattr(fun, "__code__", None) or getattr(type(fun).__call__, "__code__", None)
        return not (isinstance(code, CodeType) and code.co_filename.startswith(self._package))

    def _site(self, name: str, frames: tuple[RawFrame, ...], stack: int, own: bool) -> Site:
        site = self._known.get((name, stack))
        if site is None:
            if len(self._known) >= _SITES:
                self._known.clear()
            site = Site(next(self._numbers), name, frames, stack, own and stacks.is_users(frames))
            self._known[name, stack] = site
            self._lines.add(stack)
        return site

    def compiled(self, name: str, frames: tuple[RawFrame, ...], begun: int, jaxpr: Any) -> None:
        """A call of a function of the program's had to be compiled: the slot is not for such calls."""
        rec = self._rec
        site = self._site(name, frames, rec.stack(frames), True)
        site.fresh, site.jaxpr = True, jaxpr
        self._steps.visited(site, begun, rec.thread())

    def _executing(self, theirs: Any) -> Any:
        """What JAX calls where C++ cannot take the short way: a first call, outputs of other kinds, host callbacks."""
        rec = self._rec

        def __call__(executable: Any, *args: Any) -> Any:
            begun = perf_counter_ns()
            out = theirs(executable, *args)
            if recorder.active is rec and not self._broken:
                try:
                    self._executed(executable, begun, out)
                except Exception as error:
                    self._broken = True
                    warn(f"programs of JAX are not observed any more: {type(error).__name__}: {error}")
            return out

        return __call__

    def ensure(self) -> None:
        """The slot may have been emptied or taken meanwhile: JAX does so wherever its debugging of NaNs is set."""
        slot = internals.post_hook()
        if slot is None or self._watcher is None:
            return
        present = slot.get_global()
        if (ours := self._before(present)) is not present:
            slot.set_global(ours)
        # a thread may have an empty slot of its own, from leaving a context; only the main thread's can be given back
        if threading.current_thread() is threading.main_thread():
            present = slot.get_local()
            if (ours := self._before(present)) is not present:
                slot.set_local(ours)

    def _before(self, present: Any) -> Any:
        """What goes into the slot in the place of what is there: JAX's check of the results is called after ours."""
        if present is None:
            return self._hook
        if not callable(present) or present is self._hook or present in self._checked.values():
            return present  # a thread without a slot of its own has an object there
        if present not in self._checked:
            hook, checks = self._hooked(depth=2), self._checks

            def called(fun: Any, args: Any, kwargs: Any, out: Any) -> None:
                hook(fun, args, kwargs, out)
                checks(present, (fun, args, kwargs, out))

            self._checked[present] = called
        return self._checked[present]

    def _given_back(self, present: Any) -> Any:
        theirs = (theirs for theirs, ours in self._checked.items() if present is ours)
        return next(theirs, None if present is self._hook else present)

    def _executed(self, executable: Any, begun: int, out: Any) -> None:
        self.ensure()
        if internals.is_ours(stacks.OWN, self._package):
            return
        now, rec = perf_counter_ns(), self._rec
        frames, miss = stacks.user_frames(), internals.missed()
        name = str(getattr(executable, "name", "")).removeprefix("jit_")
        own = True
        if miss is not None:
            name, own = str(getattr(miss.fun, "__name__", name)), self.is_own(miss.fun)
        site = self._site(name, frames, rec.stack(frames), own)
        if miss is not None:
            site.leave_off()
        site.calls += 1
        if rec.keeps_code and site.own and executable not in self._told:
            self._told.add(executable)
            number = self._texts.runs(str(getattr(executable, "name", "")), miss)
            self._handed.put(functools.partial(self._texts.keep_hlo, executable, number, name, site.stack))
        self._announce(begun)
        tid = rec.thread()
        if site.own and not site.fresh:
            self._steps.visited(site, begun, tid)
        site.fresh = False
        if site.own and miss is not None and executable not in self._asked:
            self._asked.add(executable)
            arguments = site.arguments = Arguments(miss, out, site.jaxpr)
            site.jaxpr = None
            if arguments.same is not None:
                self._handed.put(arguments.same.look)
            self._handed.put(
                functools.partial(programs.tell, rec, executable, site.name, site.stack, site.program, now)
            )
        array = self._array
        token = min((one for one in out if type(one) is array), key=lambda one: one.nbytes, default=None)
        if get_ident() == self._main_ident:
            self._main = (self._main_ident, tid, now, frames)
        if token is not None and not token.is_deleted():
            self._hand_over(site, token, begun, now - begun, 1)

    def _tell(self, site: Site, fun: Any, args: Any, kwargs: Any, out: Any) -> None:
        now, calls, rec = perf_counter_ns(), site.every, self._rec
        if recorder.active is not rec or self._broken or not site.program:  # in a forked child, or not to be told
            site.skip = sys.maxsize
            return
        since = site.last
        if site.arguments is not None:
            site.arguments.called(args, kwargs, self._held)
            if site.arguments.over:
                self._tell_arguments(site)
            site.last, site.every = now, 1
        else:
            self._pace(site, now)
        site.calls += calls
        if not self._announced:
            self._announced = True
            self._announce(now)
        tid = rec.here.tid
        sending = NOT_SENT
        if site.uploads or not site.calls % _ARGUMENTS_EVERY or site.calls <= 4:
            sending = self._uploads.of_call(site, (since, now), calls, tid, fun, args, kwargs)
        if get_ident() == self._main_ident:
            self._main = (self._main_ident, tid, now, site.frames)
        if site.own:
            self._steps.visited(site, now, tid)
        token = out if type(out) is self._array else self._token(site, out)
        if token is None or token.is_deleted():
            self._uploads.arrived(sending, 0)
            return
        self._hand_over(site, token, now, 0, calls, sending)

    def _hand_over(
        self, site: Site, token: Any, begun: int, enqueue: int, calls: int, sending: Sending = NOT_SENT
    ) -> None:
        calls, site.owed = calls + site.owed, 0
        if token.is_ready():
            if sending:
                self._uploads.arrived(sending, 0)
            end, since = begun + enqueue, self._called_back()
            if since and not self._held:  # how long the call took is known, or when Python was called in it
                begun, enqueue = max(begun if enqueue else min(since, end), min(end, self._last_end)), 0
                self._last_end = end
            self._ran(site, begun, end, enqueue, calls)
        elif (
            site.lengths.stays > 0
            and not self._held
            and not sending
            and (end := site.lengths.stay(token, begun + enqueue))
        ):
            self._last_end = end
            self._rec.emit(
                events.Execute(
                    next(self._seq), site.program, begun, begun, end, enqueue, "sync", site.stack, 0, "", calls
                )
            )  # fmt: skip
        elif self._handed.qsize() < _WAITING:
            self._held.add(id(token))
            self._handed.put((site, begun, token, calls, sending))
        else:
            self._uploads.arrived(sending, 0)
            site.owed = calls

    def _ran(self, site: Site, begun: int, end: int, enqueue: int, calls: int) -> None:
        """Tell of calls whose programs ended with them. What a call takes is ``enqueue``, for all that can be seen."""
        self._rec.emit(
            events.Execute(
                next(self._seq), site.program, begun, begun + enqueue, end, enqueue, "sync", site.stack, 0, "", calls
            )
        )

    def _pace(self, site: Site, now: int) -> None:
        """How many calls are told as one from now on."""
        each = (now - site.last) // site.every if site.last else APART_NS
        site.last = now
        site.every = 1 if each >= APART_NS else min(_TOGETHER, site.every * 2, APART_NS // max(1, each) + 1)
        site.skip = site.every - 1

    def _tell_arguments(self, site: Site) -> None:
        if site.arguments is not None:
            site.arguments.tell(self._rec, site.name, site.stack, perf_counter_ns())
            site.arguments = None

    def _token(self, site: Site, out: Any) -> Any:
        """The smallest result that no later call is given for good: to hold it keeps little alive."""
        array = self._array
        site.look_after_token()
        found = None if site.path is None else _at(out, site.path)
        if type(found) is not array:
            leaves = [(leaf.nbytes, at, path) for at, (path, leaf) in enumerate(_arrays(out, array, 4))]
            if not leaves:
                from jax.tree_util import tree_leaves

                others = (leaf for leaf in tree_leaves(out) if type(leaf) is array)
                return min(others, key=lambda one: one.nbytes, default=None)
            site.path = min([leaf for leaf in leaves if leaf[2] not in site.given_up] or leaves)[2]
            found = _at(out, site.path)
        site.token = weakref.ref(found)
        return found

    def _tell_outside(self) -> None:
        """How often operations outside of jitted functions ran: by line, since the last time."""
        now, rec = perf_counter_ns(), self._rec
        for site in list(self._known.values()):
            made = site.calls + site.skipped
            count, site.ran = made - site.ran, made
            if not site.own and site.stack and count > 0:
                rec.emit(events.OutsideOperations(now, rec.text(site.name), count, site.stack))
        self._outside_at = now

    def _sampled(self, sample: events.Sample) -> None:
        """A look at the host: at a line that calls a program it was in that call, for all that can be seen."""
        if sample.stack in self._lines and sample.state in ("python", "cpu", ""):
            sample = replace(sample, state="call")
        self._rec.emit(sample)

    def _ask(self, about: Callable[[], None]) -> None:
        try:
            if recorder.active is self._rec:
                about()
        except Exception as error:
            if not self._broken:
                warn(f"what a program of JAX needs is not known: {type(error).__name__}: {error}")

    # -- the watcher ------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        pause: float | None = None  # until the next look at the idle host
        sampled = False
        wait = self._array.block_until_ready
        while True:
            try:
                run = self._handed.get(timeout=pause)
            except queue.Empty:
                pause = self._sampler.look(Target(*self._main), self._last_end)
                sampled = True
                continue
            if run is None:
                return
            if callable(run):
                self._ask(run)
                continue
            if perf_counter_ns() - self._outside_at > _OUTSIDE_NS:
                self._tell_outside()
            if sampled:
                sampled = False
                self._sampler.flush()
            site, enqueued, token, calls, sending = run
            error, late, blocked, seen = "", False, switches(), 0
            try:
                late, seen = token.is_ready(), perf_counter_ns()
                wait(token)
            except Exception as failure:
                if token.is_deleted():  # given up to a later call: that one's end is later
                    self._held.discard(id(token))
                    self._uploads.arrived(sending, 0)
                    continue
                error = f"{type(failure).__name__}: {failure}".splitlines()[0]
            seen = seen if late else perf_counter_ns()
            blocked = switches() - blocked
            self._called_back()
            was = id(token)
            del token, run
            self._held.discard(was)
            start = max(enqueued, self._last_end)
            self._last_end = end = site.lengths.ended(start, seen, late, blocked, calls == 1 and not sending)
            if sending:  # what the program needs was on its way meanwhile: no longer than its runs usually take
                site.runs.append(end - start)
                usual = sorted(site.runs)[len(site.runs) // 2]
                start = max(start, enqueued + self._uploads.arrived(sending, min(usual, end - enqueued)))
            if recorder.active is self._rec:
                self._rec.emit(
                    events.Execute(
                        next(self._seq), site.program, enqueued, start, end, 0, "sync", site.stack, 0, error, calls
                    )
                )
            pause = self._sampler.gap_began()


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    """What plain containers have there; None: nothing."""
    try:
        for step in path:
            value = value[step]
    except (KeyError, IndexError, TypeError):
        return None
    return value


def _arrays(value: Any, array: type, deep: int, path: tuple[Any, ...] = ()) -> Any:
    """The arrays within plain containers, with the way to each."""
    if type(value) is array:
        yield path, value
    elif deep and isinstance(value, tuple | list):
        for at, one in enumerate(value[:_TOGETHER]):
            yield from _arrays(one, array, deep - 1, (*path, at))
    elif deep and type(value) is dict:
        for name, one in itertools.islice(value.items(), _TOGETHER):
            yield from _arrays(one, array, deep - 1, (*path, name))
