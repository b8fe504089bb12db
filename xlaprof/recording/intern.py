"""Ids for what repeats in a log: strings, places in the program, threads.

The event that defines an id is queued before the id is handed out, so no event names an id before its definition. A
hit costs one dict lookup and takes no lock. The tables are bounded: past the limit a new string gets the id of a text
that says so, a new place gets id 0 ("none"), and both are counted.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from xlaprof.bounds import cut
from xlaprof.events import Frame, Stack, Text, Thread
from xlaprof.source_text.lines import loop_line, source_line
from xlaprof.source_text.takers import takers

from .stacks import Called, RawFrame, library

if TYPE_CHECKING:
    import asyncio

TEXT_LIMIT = 65_536
STACK_LIMIT = 65_536
_SAME_LIMIT = 1_024
_NOWHERE = RawFrame("", 0, "")
_TOO_MANY = "(too many different names)"


class NewStack(NamedTuple):
    """A place that the writer turns into a :class:`Stack`: it reads the source lines, off the hot path."""

    id: int
    frames: tuple[RawFrame, ...]
    names: tuple[tuple[int, int], ...]  # ids of file and function: of the frames, then of its libraries' frames
    module: int


class Opened(list[Any]):
    """The scopes open on a thread, with the thread's number: one lookup finds both."""

    __slots__ = ("tid",)

    tid: int


class Here(threading.local):
    """The calling thread: its number, and the stack of the scopes open on it."""

    tid = 0  # of a thread that is being met for the first time: a collection may come in between, and ask

    def __init__(self, loops: ModuleType, new_thread: Callable[[], int]) -> None:
        # runs once in each thread, at its first access: when the program may have an asyncio.py of its own
        self._running_loop = loops._get_running_loop
        self._current_task = loops.current_task
        self.tid = new_thread()
        self.open = Opened()
        self.open.tid = self.tid
        self._tasks: weakref.WeakKeyDictionary[asyncio.Task[Any], list[Any]] = weakref.WeakKeyDictionary()

    def of_task(self) -> tuple[list[Any], int]:
        """The stack to use, and the scopes open around what is pushed next: in an asyncio task, the task's own."""
        base = self.open[-1][1] if self.open else 0
        if self._running_loop() is None:
            return self.open, base
        task = self._current_task()
        if task is None:  # a callback
            return self.open, base
        stack = self._tasks.get(task)
        if stack is None:
            stack = self._tasks[task] = []
        return stack, stack[-1][1] if stack else base


class Interner:
    """The tables of one recording. ``publish`` takes a defining event and keeps its order."""

    def __init__(self, publish: Callable[[Text | Thread | NewStack], None]) -> None:
        self._publish = publish
        # reentrant: the garbage collector may run code that interns while we hold it
        self._lock = threading.RLock()
        self._ids = itertools.count(1)
        self._stack_ids = itertools.count(1)
        self._tids = itertools.count(2)
        self.texts: dict[str, int] = {"": 0}
        self._stacks: dict[tuple[tuple[RawFrame, ...], str], int] = {}
        # id() of a tuple of frames -> the tuple and its stack id, without a module: a loop passes the same objects
        self._same: dict[int, tuple[tuple[RawFrame, ...], int]] = {}
        self._threads: dict[int, str] = {}
        self._numbered: weakref.WeakKeyDictionary[threading.Thread, int] = weakref.WeakKeyDictionary()
        self._library: dict[tuple[RawFrame, bool], Frame] = {}  # the writer's own, as these:
        self._takers: dict[tuple[str, int, str, int], tuple[str, ...]] = {}
        self._codes: dict[str, int] = {"": 0}  # its Text lines bypass the queue
        import asyncio  # slow to import, and of no use to programs that do not record

        self.here = Here(asyncio, self._new_thread)
        self.refused = 0

    def text(self, s: str) -> int:
        known = self.texts.get(s)
        if known is not None:
            return known
        s = cut(s)
        with self._lock:
            known = self.texts.get(s)
            if known is not None:
                return known
            if len(self.texts) >= TEXT_LIMIT and s != _TOO_MANY:
                self.refused += 1
                return self.text(_TOO_MANY)
            ident = next(self._ids)
            self._publish(Text(ident, s))
            self.texts[s] = ident
            return ident

    def stack(self, frames: tuple[RawFrame, ...], module: str = "") -> int:
        """Id of a place in the program, as :func:`xlaprof.recording.stacks.user_frames` gives it; 0 for none."""
        if module:
            return self._stack(frames, module)
        same = self._same.get(id(frames))
        if same is not None and same[0] is frames:
            return same[1]
        known = self._stack(frames, "")
        if len(self._same) >= _SAME_LIMIT:
            self._same.clear()
        self._same[id(frames)] = (frames, known)
        return known

    def _stack(self, frames: tuple[RawFrame, ...], module: str) -> int:
        key = (frames, module)
        known = self._stacks.get(key)
        if known is not None:
            return known
        if not frames and not module:
            return 0
        with self._lock:
            known = self._stacks.get(key)
            if known is not None:
                return known
            if len(self._stacks) >= STACK_LIMIT:
                self.refused += 1
                return 0
            new = self._new_stack(next(self._stack_ids), frames, module)
            self._publish(new)
            self._stacks[key] = new.id
            return new.id

    def _new_stack(self, ident: int, frames: tuple[RawFrame, ...], module: str) -> NewStack:
        all_frames = (*frames, *(called.frame for called in library(frames)))
        names = tuple((self.text(frame.file), self.text(frame.func)) for frame in all_frames)
        return NewStack(ident, frames, names, self.text(module))

    def thread(self) -> int:
        """Small number of the calling thread: 1 is the main thread."""
        return self.here.tid

    def _new_thread(self) -> int:
        ident = threading.get_ident()
        # current_thread() would invent an object for a thread that Python did not start
        me = next((thread for thread in threading.enumerate() if thread.ident == ident), None)
        if me is not None and me in self._numbered:
            # a collection came while Python made this thread's `Here`, and made one of its own: the thread is one
            return self._numbered[me]
        if me is threading.main_thread():
            tid, name = 1, "MainThread"
        else:
            tid = next(self._tids)
            name = me.name if me is not None else f"native thread {tid}"
        if me is not None:
            self._numbered[me] = tid
        self._threads[tid] = name
        self._publish(Thread(tid, name))
        return tid

    def resolve(self, new: NewStack, write: Callable[[Text], None]) -> Stack:
        """The event for a new place. Reads source files: the writer's thread only."""
        called = library(new.frames)
        frames = [self._frame(*one, write) for one in zip(new.frames, new.names, strict=False)]
        libraries = [
            self._library_frame(one, ids, write) for one, ids in zip(called, new.names[len(frames) :], strict=True)
        ]
        depths = [one.depth for one in called]
        inner, outer = (*new.frames, _NOWHERE, _NOWHERE)[:2]
        if depths and depths[0] < 2:  # a library's line is the innermost, or calls the function of the innermost
            inner, outer = inner if depths[0] else called[0].frame, _NOWHERE
        taken = self._taken(inner, outer)
        return Stack(new.id, frames, new.module, libraries, depths, [self._code(one, write) for one in taken])

    def _taken(self, inner: RawFrame, outer: RawFrame) -> tuple[str, ...]:
        """What takes the value of a line: of the same one for most stacks."""
        key = inner.file, inner.line, outer.file, outer.line
        if (known := self._takers.get(key)) is None:
            if len(self._takers) >= _SAME_LIMIT:
                self._takers.clear()
            known = self._takers[key] = takers(inner.file, inner.line, (outer.file, outer.line))
        return known

    def _library_frame(self, one: Called, ids: tuple[int, int], write: Callable[[Text], None]) -> Frame:
        """The same objects for most stacks: what drives a program calls it all along."""
        key = one.frame, one.drawn
        known = self._library.get(key)
        if known is None:
            if len(self._library) >= _SAME_LIMIT:
                self._library.clear()
            known = self._library[key] = self._frame(one.frame, ids, write, loops=not one.drawn)
        return known

    def _frame(
        self, raw: RawFrame, ids: tuple[int, int], write: Callable[[Text], None], *, loops: bool = True
    ) -> Frame:
        file, func = ids
        code = self._code(source_line(raw.file, raw.line), write)
        loop = loop_line(raw.file, raw.line) if loops else 0
        return Frame(file, raw.line, func, code, loop, self._code(source_line(raw.file, loop), write) if loop else 0)

    def _code(self, code: str, write: Callable[[Text], None]) -> int:
        known = self._codes.get(code)
        if known is None:
            known = self._codes[code] = next(self._ids)
            write(Text(known, code))
        return known

    def define_again(self, write: Callable[[Text | Thread | Stack], None]) -> None:
        """Define every id once more, for a file that is begun again. The writer's thread only."""
        for known in (self.texts, self._codes):
            for text, ident in list(known.items()):
                if ident:
                    write(Text(ident, text))
        for tid, name in list(self._threads.items()):
            write(Thread(tid, name))
        for (frames, module), ident in list(self._stacks.items()):
            write(self.resolve(self._new_stack(ident, frames, module), write))

    def after_fork(self) -> None:
        """In a forked child: a thread that no longer exists may have held the lock."""
        self._lock = threading.RLock()
