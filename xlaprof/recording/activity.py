"""A thread's activity, from its Python frames."""

from __future__ import annotations

import dis
import os
import sys
import threading
import time
from types import CodeType, FrameType
from typing import NamedTuple

from xlaprof.source_text.lines import source_line

from .stacks import OWN, Called, RawFrame, acts, is_library, raw_frame, shown_file, stack_of

#: kinds of :class:`Activity`, as :class:`xlaprof.events.Sample` has them
PYTHON, TORCH, DATA, CHECKPOINT, IMPORT = "python", "torch", "data", "checkpoint", "import"

_FRAMES = 8  # of the user's, kept
_DEPTH = 200  # frames looked at
_CACHED = 10_000
_LOADER = os.path.join(OWN, "runtime", "transfer", "loader.py")
IMPORTS = "<frozen importlib._bootstrap>"  # within its frames a module is imported for the first time
_GENERATOR = 0x20  # inspect.CO_GENERATOR, without importing inspect
_AT_ONCE_S = 1e-4  # after which the owner of the interpreter's lock gives it up, while we ask for it
_LEAST_NS, _CHANCE_NS = 200_000, 800_000  # before we ask: a fixed time, and one of chance, as the clock has it

_MARKS = (
    (DATA, ("/torch/utils/data/", "/torchdata/", "/webdataset/")),
    (CHECKPOINT, ("/torch/serialization.py", "/torch/distributed/checkpoint/", "/safetensors/")),
)
#: modules of the standard library in which a thread waits for a lock, a queue or a socket
_WAITS = frozenset({"threading", "queue", "selectors", "subprocess", "socket", "ssl", "asyncio.base_events"})
_WAIT_PACKAGES = ("concurrent.futures.", "multiprocessing.")


class Activity(NamedTuple):
    """What a thread does, and where."""

    kind: str
    frames: tuple[RawFrame, ...]  # the user's, innermost first
    in_wait_call: bool  # its innermost frame belongs to a queue, a lock or a socket


def activity(start: FrameType, spine: tuple[RawFrame, ...]) -> Activity | None:
    """The activity of the thread whose innermost frame is ``start``; None in xlaprof itself, whose events record that.

    ``spine`` is the stack of the barrier (or read) that the thread reached last: the loop around that line iterates
    over the data.
    """
    kind = ""
    torch = False  # the innermost line, the user's or an acting library's, called PyTorch's own Python
    found: list[RawFrame] = []
    called: list[Called] = []
    loops = {(frame.file, frame.func): frame.line for frame in spine}
    inner: FrameType | None = None
    frame: FrameType | None = start
    for _ in range(_DEPTH):
        if frame is None:
            break
        code = frame.f_code
        shown, mark = _file(frame)
        if mark == "own":
            if not found and not kind:
                return None
        elif mark == TORCH:
            torch = torch or not (found or called)
        elif mark == IMPORT:
            kind = kind if found else IMPORT  # whatever the module does meanwhile; one of the user's runs as a program
        elif mark and not kind:
            kind = mark
        if shown:
            if not kind and inner is not None:
                line = loops.get((shown, code.co_qualname))
                if line is not None and _draws(frame, inner, line, shown):
                    kind = DATA
            if len(found) < _FRAMES:
                found.append(raw_frame(shown, frame))
        elif not mark and acts(code.co_filename) and len(found) < _FRAMES:
            here = raw_frame(code.co_filename, frame)
            called.append(Called(here, len(found), bool(code.co_flags & _GENERATOR)))
        inner, frame = frame, frame.f_back
    module = start.f_globals.get("__name__")
    waits = isinstance(module, str) and (module in _WAITS or module.startswith(_WAIT_PACKAGES))
    return Activity(kind or (TORCH if torch else PYTHON), stack_of(found, called), waits)


_files: dict[str, tuple[str, str]] = {}


def _file(frame: FrameType) -> tuple[str, str]:
    """``(name to show, "" of a library; mark: "own", a kind, or "")`` of the file that ``frame`` is in."""
    name = frame.f_code.co_filename
    known = _files.get(name)
    if known is None:
        mark = IMPORT if name == IMPORTS else ""
        if name.startswith(OWN):
            mark = DATA if name == _LOADER else "own"
        elif not mark and is_library(name, frame.f_globals.get("__name__")):
            path = name.replace(os.sep, "/")
            other = TORCH if "/site-packages/torch/" in path or "/dist-packages/torch/" in path else ""
            mark = next((kind for kind, parts in _MARKS if any(part in path for part in parts)), other)
        if len(_files) >= _CACHED:
            _files.clear()
        known = _files[name] = (shown_file(frame), mark)
    return known


def _draws(frame: FrameType, inner: FrameType, line: int, file: str) -> bool:
    """Whether ``frame`` draws the next item from ``inner``, for a loop whose body reaches ``line``."""
    code = frame.f_code
    if not (inner.f_code.co_flags & _GENERATOR or inner.f_code.co_name in ("__next__", "__iter__", "__getitem__")):
        return False
    body = _loop_body(code, frame.f_lasti)
    if body is not None:
        return line in body
    return inner.f_code.co_name != "__getitem__" and "next(" in source_line(file, raw_frame(file, frame).line)


_bodies: dict[tuple[CodeType, int], frozenset[int] | None] = {}


def _loop_body(code: CodeType, offset: int) -> frozenset[int] | None:
    """The lines of the loop whose head is the instruction at ``offset``; None where that is no loop's head."""
    key = (code, offset)
    if key not in _bodies:
        if len(_bodies) >= _CACHED:
            _bodies.clear()
        _bodies[key] = _find_body(code, offset)
    return _bodies[key]


def _find_body(code: CodeType, offset: int) -> frozenset[int] | None:
    end = -1
    for instruction in dis.get_instructions(code):
        if instruction.offset == offset:
            if instruction.opname != "FOR_ITER":
                return None
            end = instruction.argval
            break
    return frozenset(line for begin, _, line in code.co_lines() if line is not None and offset < begin < end)


_asking = threading.Lock()  # held while the interpreter's lock is forced, for the setting is the process's
if hasattr(os, "register_at_fork"):  # a child begins with the program's own setting
    os.register_at_fork(before=_asking.acquire, after_in_parent=_asking.release, after_in_child=_asking.release)


def unchosen_moment() -> None:
    """Wait for a moment that the thread looked at does not choose, a millisecond at most.

    Who asks for the interpreter's lock gets it when its owner gives it up by itself, within
    ``sys.getswitchinterval()`` (5 ms): in code that soon computes without the lock always there, whatever took the
    time before. So the lock is asked for again, at a moment of chance, and the owner forced to give it up at once.
    """
    moment_s = (_LEAST_NS + time.perf_counter_ns() % _CHANCE_NS) / 1e9
    if not _asking.acquire(blocking=False):  # another thread forces it now, and restores what the program had set
        time.sleep(moment_s)
        return
    try:
        was = sys.getswitchinterval()
        sys.setswitchinterval(min(was, _AT_ONCE_S))
        try:
            time.sleep(moment_s)
        finally:
            if sys.getswitchinterval() < 2 * _AT_ONCE_S:  # else the program set it meanwhile
                sys.setswitchinterval(was)
    finally:
        _asking.release()
