"""Places in the user's program: cheap stacks of the user's frames.

A frame is *the user's* unless its file belongs to the interpreter, to an installed package or command, to a
compiled-code cache or to xlaprof itself. The frames of a *library that acts* are kept beside the user's: an installed
package that calls PyTorch (``transformers``, ``accelerate``...). PyTorch, jax, numpy and the standard library do what
they are told: their frames are left out.

The verdict is cached by file name: walking a stack costs one dict lookup per frame. It reads no files.
"""

from __future__ import annotations

import gc
import linecache
import operator
import os
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import accumulate, repeat, takewhile
from types import CodeType, FrameType
from typing import NamedTuple, TypeVar, cast

_T = TypeVar("_T")


class RawFrame(NamedTuple):
    """One frame: absolute file name (or ``<stdin>`` and the like), line from 1, qualified function name."""

    file: str
    line: int
    func: str


class Called(NamedTuple):
    """A library's frame, below the user's innermost line or between two of the user's."""

    frame: RawFrame
    depth: int  # how many of the user's frames are further in; 0: it is below the user's line
    drawn: bool = False  # a generator: the loop that draws from it repeats it, not a loop of its own


class Frames(tuple[RawFrame, ...]):
    """The user's frames, innermost first, of a stack that libraries take part in.

    A stack without them is a plain tuple. Two stacks that differ in ``library`` are different places; a part of one
    (``frames[1:]``) is a plain tuple of the user's.
    """

    library: tuple[Called, ...]  # innermost first

    def __new__(cls, frames: Iterable[RawFrame], library: tuple[Called, ...]) -> Frames:
        self = super().__new__(cls, frames)
        self.library = library
        return self

    def __eq__(self, other: object) -> bool:
        return self is other or (tuple.__eq__(self, other) is True and self.library == library(other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            self._hash: int = hash((*self, self.library))
            return self._hash


def library(frames: object) -> tuple[Called, ...]:
    """The libraries' frames of a stack, innermost first."""
    return getattr(frames, "library", ())


def whole(frames: tuple[RawFrame, ...]) -> tuple[RawFrame, ...]:
    """The user's frames and the libraries', innermost first."""
    called = library(frames)
    if not called:
        return frames
    return tuple(
        frame
        for depth in range(len(frames))
        for frame in (*(one.frame for one in called if one.depth == depth), frames[depth])
    )


def split(frames: Iterable[RawFrame]) -> tuple[RawFrame, ...]:
    """The opposite of :func:`whole`: a stack from frames of any kind, innermost first.

    Where none is the user's, they stand for themselves.
    """
    frames = tuple(frames)
    users: list[RawFrame] = []
    called: list[Called] = []
    for frame in frames:
        if not is_library(frame.file, None):
            users.append(frame)
        elif acts(frame.file):
            called.append(Called(frame, len(users)))
    return stack_of(users, called) if users else frames


def stack_of(users: list[RawFrame], called: list[Called]) -> tuple[RawFrame, ...]:
    """A stack of the user's frames and the libraries' between them."""
    inside = tuple(one for one in called if one.depth < len(users))  # launchers are around the user's frames
    return Frames(users, inside) if inside else tuple(users)


def user_frames(limit: int = 8, skip: int = 0) -> tuple[RawFrame, ...]:
    """The user's frames that called this, innermost first, at most ``limit``; :class:`Frames` where libraries act.

    ``skip`` leaves out that many frames next to the caller, the user's or not. Where no frame is the user's, the
    result is :data:`AT_EXIT` on the main thread when the program has ended, else the outermost frames outside xlaprof
    (a library running itself).
    """
    try:
        frame = sys._getframe(1 + skip)
    except ValueError:  # skip reaches past the end of the stack
        return ()
    return _walk(frame, limit) or _outermost(frame, limit, threading.get_ident())


def running(ident: int) -> list[FrameType]:
    """The frames of a thread (``threading.get_ident()``) now, innermost first; empty if it has ended. Call it with
    :data:`looking` held, and let go of the frames before that.

    CPython makes the object of a frame when somebody asks for it, and before 3.12 that may begin a garbage collection.
    A finalizer then lets the other thread run on and leave the very frame: what is read and written afterwards is the
    memory of others, and the program crashes. So all objects of a stack are made in one call, without a collection.
    ``f_back`` of a frame whose caller has its object makes none.
    """
    if ident == threading.get_ident():
        return list(_outward(sys._getframe(1)))
    innermost = _uninterrupted(sys._current_frames).get(ident)
    return [] if innermost is None else _uninterrupted(partial(list, _outward(innermost)))


def threads() -> list[int]:
    """All threads that run Python now: those that libraries made, autograd's say, are unknown to :mod:`threading`."""
    return list(_uninterrupted(sys._current_frames))


def _outward(innermost: FrameType) -> Iterator[FrameType]:
    """A stack's frames, without running any Python."""
    return takewhile(operator.truth, accumulate(repeat("f_back"), getattr, initial=innermost))


def _uninterrupted(call: Callable[[], _T]) -> _T:
    """``call()``, which runs no Python, without a garbage collection and so without another thread in between.

    That collections are off, and on again, nobody sees: all three calls are one of the interpreter's instructions. The
    result is in no variable here: frames of all threads, this one too, would be held by their own.
    """
    if sys.version_info >= (3, 12) or not gc.isenabled():
        return call()
    try:
        return cast(_T, list(map(operator.call, (gc.disable, call, gc.enable)))[1])
    except BaseException:  # no memory: the third was not called
        gc.enable()
        raise


def user_frames_of(innermost: FrameType, limit: int = 8) -> tuple[RawFrame, ...]:
    """The user's frames of a stack, innermost first; empty where there is none. Of another thread's stack all frames
    are held meanwhile (:func:`running`)."""
    return _walk(innermost, limit)


def frames_of_thread(ident: int, limit: int = 8) -> tuple[RawFrame, ...]:
    """The user's frames of another thread (``threading.get_ident()``) now; empty if it has ended."""
    with looking:
        stack = running(ident)
        found = _walk(stack[0], limit) or _outermost(stack[0], limit, ident) if stack else ()
        del stack
    return found


#: name of the innermost function of a thread that waits for a backward pass, which threads of PyTorch's go through
WAITS_FOR_BACKWARD = "_engine_run_backward"

#: in place of a line, where none of the program's runs any more: its exit handlers, or who launched it
AT_EXIT = (RawFrame("at exit", 0, ""),)


def is_users(frames: tuple[RawFrame, ...]) -> bool:
    """Whether the frames of a stack are the user's, not a library's or :data:`AT_EXIT` in their place."""
    return bool(frames) and frames is not AT_EXIT and _shown.get(frames[0].file) != ""


#: Held while one thread looks at the frames of others. A frame that is referenced keeps its function's locals alive,
#: tensors too, even after the function has returned: acquire this before counting live tensors.
looking = threading.RLock()


def shown_file(frame: FrameType) -> str:
    """The name of the file that ``frame`` is in, absolute; empty where its code is not the user's."""
    shown = _shown.get(frame.f_code.co_filename)
    return _classify(frame) if shown is None else shown


def raw_frame(file: str, frame: FrameType) -> RawFrame:
    """Where ``frame`` is; another thread's may be at an instruction of no line, and so at its function's first."""
    return RawFrame(file, frame.f_lineno or frame.f_code.co_firstlineno, frame.f_code.co_qualname)


#: file name of a code object -> name to show, or "" where it is not the user's
_shown: dict[str, str] = {}
#: file name of a code object -> whether its frames are kept: the user's, and those of libraries that act
_kept: dict[str, bool] = {}
_SHOWN_LIMIT = 100_000


class _Seen(NamedTuple):
    """A stack that was walked: the frames that are kept, and the code objects that identify it."""

    frames: tuple[RawFrame, ...]
    innermost: CodeType  # of the kept ones; held because its id is part of the key
    callers: tuple[tuple[CodeType, int], ...]  # code and instruction of each frame around it, as far as was walked
    to_the_end: bool


#: id of the innermost code object that is kept, its instruction, limit -> stacks seen there, the latest first
_seen: dict[tuple[int, int, int], list[_Seen]] = {}
_SEEN_LIMIT = 4_096
_CALLED_FROM = 4  # of one place
_LIBRARY = 32  # frames of libraries kept of a stack
_GENERATOR = 0x20  # inspect.CO_GENERATOR, without importing inspect


def _walk(start: FrameType, limit: int) -> tuple[RawFrame, ...]:
    """The frames that are kept, () if none is the user's. A stack seen lately gives the same tuple again, without
    looking up a line."""
    frame = start
    code = frame.f_code
    known = _seen.get((id(code), frame.f_lasti, limit))  # the caller is the user's, mostly
    if known is None:
        kept = _kept
        while True:
            keep = kept.get(code.co_filename)
            if keep is None:
                keep = _is_kept(frame)
            if keep:
                break
            back = frame.f_back
            if back is None:
                return ()
            frame = back
            code = frame.f_code
        known = _seen.get((id(code), frame.f_lasti, limit), [])
    for frames, _, callers, to_the_end in known:
        outer = frame.f_back
        for other, place in callers:
            if outer is None or outer.f_code is not other or outer.f_lasti != place:
                break
            outer = outer.f_back
        else:
            if outer is None or not to_the_end:
                return frames
    return _look(frame, limit)


def _look(innermost: FrameType, limit: int) -> tuple[RawFrame, ...]:
    """The frames from ``innermost`` outward; empty where none is the user's."""
    users: list[RawFrame] = []
    called: list[Called] = []
    places: list[tuple[CodeType, int]] = []
    frame: FrameType | None = innermost
    while frame is not None and len(users) < limit:
        # read together: the frame may belong to another thread, which goes on meanwhile
        code, at, line = frame.f_code, frame.f_lasti, frame.f_lineno
        places.append((code, at))
        if _is_kept(frame):
            file = shown_file(frame)
            found = RawFrame(file or code.co_filename, line or code.co_firstlineno, code.co_qualname)
            if file:
                users.append(found)
            elif len(called) < _LIBRARY:
                called.append(Called(found, len(users), bool(code.co_flags & _GENERATOR)))
        frame = frame.f_back
    if not users:
        return ()
    code, at = places[0]
    if len(_seen) >= _SEEN_LIMIT:
        _seen.clear()
    seen = _Seen(stack_of(users, called), code, tuple(places[1:]), len(users) < limit)
    here = _seen.setdefault((id(code), at, limit), [])
    here[:] = [seen, *here[: _CALLED_FROM - 1]]
    return seen.frames


def _is_kept(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    kept = _kept.get(name)
    if kept is None:
        # "<string>" is one name of many files (:func:`_classify`): the user's, or generated
        if name == "<string>":
            return bool(shown_file(frame))
        if len(_kept) >= _SHOWN_LIMIT:
            _kept.clear()
        kept = _kept[name] = bool(shown_file(frame)) or acts(name)
    return kept


def _outermost(start: FrameType, limit: int, thread: int) -> tuple[RawFrame, ...]:
    """The frames nearest the bottom of a stack of ``thread`` in which nothing is the user's, without xlaprof's and
    launchers'.

    While a program runs, its main thread executes a module. Once it has ended, an exit handler, a finalizer or
    whoever launched it is at the bottom of the stack.
    """
    found: list[RawFrame] = []
    running = thread != threading.main_thread().ident
    frame: FrameType | None = start
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        if file == _RUNNER:
            break
        if not file.startswith((OWN, "<")):
            running = running or code.co_name == "<module>"
            if not _is_command(file):
                found.append(raw_frame(file, frame))
        frame = frame.f_back
    return tuple(found[-limit:]) if running else AT_EXIT


def _classify(frame: FrameType) -> str:
    code = frame.f_code
    name = code.co_filename
    if name == "<string>":
        # `python -c`, `exec`, the methods that dataclasses and namedtuples generate and the first line of
        # multiprocessing's workers all bear this name
        generated = code.co_name.startswith("__") or str(frame.f_globals.get("__name__")).startswith("namedtuple_")
        generated = generated or not _WORKERS.isdisjoint(code.co_names)
        return "" if generated or _is_made(frame) else name
    if is_library(name, frame.f_globals.get("__name__")) or (name.startswith("<") and _is_made(frame)):
        shown = ""
    elif name.startswith("<"):
        shown = name
    else:
        # absolute now: the program may change its directory before the line is looked up
        shown = os.path.abspath(name)
    if shown:
        # lets linecache ask the module's loader (zip files) when there is no such file on disk
        linecache.lazycache(shown, frame.f_globals)
    if len(_shown) >= _SHOWN_LIMIT:
        _shown.clear()
    _shown[name] = shown
    return shown


#: packages whose frames are never the user's, even from a source checkout
_LIBRARIES = frozenset({"torch", "torch_xla", "functorch", "jax", "jaxlib", "numpy", "xlaprof"})
#: and that do as they are told, or only call what they are given: their frames are left out
_PASSIVE = _LIBRARIES | {
    "IPython", "_pytest", "absl", "click", "debugpy", "decorator", "execnet", "hydra", "ipykernel", "opt_einsum",
    "pluggy", "pytest", "rich", "scipy", "tqdm", "typer", "xdist",
}  # fmt: skip
#: code written by code: nobody's line
_GENERATED = ("<frozen ", "<attrs generated", "<__array_function__", "<decorator-gen", "<torch_")
_WORKERS = frozenset({"multiprocessing.spawn", "multiprocessing.forkserver"})
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_PACKAGES = (*_INSTALLED, f"{os.sep}torchinductor_")
#: the folder of xlaprof itself
OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
#: what ``xlaprof run`` executes a program from: frames around it are the launcher's
_RUNNER = os.path.join(OWN, "commands", "run.py")


def _standard_library() -> tuple[str, ...]:
    found = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), os.path.dirname(linecache.__file__)}
    return tuple({form + os.sep for path in found if path for form in (path, os.path.realpath(path))})


_STANDARD = _standard_library()


def _commands() -> frozenset[str]:
    """Folders of the commands that installed packages have, as torchrun."""
    user = sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))
    found = (sysconfig.get_path("scripts"), user, os.path.dirname(sys.executable))
    return frozenset(form for path in found if path for form in (path, os.path.realpath(path)))


_COMMANDS = _commands()


def _is_command(file: str) -> bool:
    """Whether ``file`` is the command of an installed package, as torchrun; a script beside them ends in .py."""
    folder, _, name = file.rpartition(os.sep)
    return folder in _COMMANDS and "." not in name


def _is_made(frame: FrameType) -> bool:
    """Whether code without a file was made by a library's module, or runs in a namespace that is no module's."""
    where = frame.f_globals
    return "__name__" not in where or is_library(str(where.get("__file__", "")), None)


def is_library(file: str, module: object) -> bool:
    """Whether code of ``file``, in a module of that name (where it is known), is not the user's."""
    if file.startswith("<"):
        return file.startswith(_GENERATED)
    if file.startswith((OWN, *_STANDARD)) or any(part in file for part in _PACKAGES):
        return True
    if _is_command(file) or file == AT_EXIT[0].file:
        return True
    return isinstance(module, str) and module.partition(".")[0] in _LIBRARIES


def acts(file: str) -> bool:
    """Whether ``file`` belongs to a library that acts: an installed package that is no tool around PyTorch."""
    for part in _INSTALLED:
        _, found, path = file.rpartition(part)
        if found:
            return path.partition(os.sep)[0].removesuffix(".py") not in _PASSIVE
    return False
