"""What JAX brings to the device: values of the host among a call's arguments, and what ``device_put`` is given.

A call that has its program copies NumPy arrays in C++, where nothing tells how long that takes. The watcher's thread
brings each such argument to the device once more, a few times in all, and measures that: calls are told with it. Large
arrays are copied after the call has returned; the device is not busy with its program before they are there. The other
uploads go through one function of JAX's, which is timed.
"""

from __future__ import annotations

import functools
import inspect
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from xlaprof import events
from xlaprof.errors import warn
from xlaprof.recording import recorder, stacks
from xlaprof.recording.repeats import WHOLE, described

from . import internals
from .callbacks import within
from .sites import NOTHING, Sent, Site

if TYPE_CHECKING:
    from xlaprof.recording.recorder import Recorder

_LOOKS, _LOOK_EVERY = 4, 16  # told calls of a place whose arguments are compared: the first few, then one of so many
_MEASURED = 3  # times that an argument is brought to the device to measure it
_ALIGNED = 64  # bytes: the CPU client reads arrays so aligned where they are
#: bytes of memory taken for a measurement: of the host's; of an accelerator's, where it does not say how much is free
_ON_HOST, _ON_DEVICE = 1 << 26, 1 << 22
_SPARE = 64  # as much of an accelerator's memory is free for each byte of a measurement
_FOLLOWED = 1 << 20  # bytes: how long such an upload goes on after device_put has returned, the watcher sees
_DEEP = 3  # containers in each other: of arguments
_LEAVES = 64  # of the arguments of a call: further ones count as new
_KEPT = 4_096  # arguments whose time is known
_NUMBERS = (bool, int, float, complex)
_OF_NUMPY = (np.ndarray, np.generic)


class _Leaf(NamedTuple):
    """An array among the arguments, and the way to it."""

    path: tuple[Any, ...]
    array: np.ndarray[Any, Any]


class _Took(NamedTuple):
    """ns for a byte of an upload: of the caller, and until it is there; and how often that was measured."""

    kept: float = 0.0
    whole: float = 0.0
    times: int = 0


_UNKNOWN = _Took()
#: uploads of one call, with the ns that each goes on after it
Sending = tuple[tuple[events.TransferToDevice, int], ...]
NOT_SENT: Sending = ()
_Key = tuple[int, tuple[Any, ...]]  # a site and the path to an argument, or a place and the shape of what is put


class Uploads:
    """Of one recording."""

    def __init__(
        self,
        rec: Recorder,
        package: str,
        announce: Callable[[int], None],
        ask: Callable[[Callable[[], None]], None],
    ) -> None:
        """``ask``: has the watcher call a function."""
        self._rec, self._package, self._announce, self._ask = rec, package, announce, ask
        self._took: dict[_Key, _Took] = {}
        self._named: dict[tuple[int, tuple[Any, ...], tuple[int, ...]], int] = {}  # site, path, shape -> Text id
        self._asked: queue.SimpleQueue[tuple[_Key, Any]] = queue.SimpleQueue()
        self._undo: Callable[[], None] = lambda: None
        self._wait: Callable[[Any], Any] = lambda array: None
        self._measuring = 0  # the thread that does
        self._call = 0  # ns that device_put takes for next to nothing
        self._broken = False

    def attach(self) -> None:
        """Before reads are watched: that the watcher waits is none of the program's."""
        self._wait = internals.array_class().block_until_ready
        owner = internals.uploading()
        if owner is not None:
            theirs = owner.batched_device_put
            self._undo = functools.partial(setattr, owner, "batched_device_put", theirs)
            owner.batched_device_put = self._timed(theirs)

    def detach(self) -> None:
        self._undo()

    # -- among the arguments of a call that has its program

    def of_call(
        self, site: Site, between: tuple[int, int], calls: int, tid: int, fun: Any, args: Any, kwargs: Any
    ) -> Sending:
        """``calls`` calls at ``site``, the last of them with these arguments. ``between``: since when, until when.

        Returns what is to be told once it is known when that call's program has ended (:meth:`arrived`).
        """
        size, count = _of_the_host(args, _DEEP - 1)
        if kwargs:
            more = _of_the_host(kwargs.values(), _DEEP - 1)
            size, count = size + more[0], count + more[1]
        site.uploads = count > 0
        if not count:
            site.sent = NOTHING
            return NOT_SENT
        if site.told < _LOOKS or not site.told % _LOOK_EVERY:
            site.sent = self._look(site, fun, args, kwargs)
        site.told += 1
        sent, (since, begin) = site.sent, between
        size, count = size - sent.size, count - sent.arrays  # of what is new
        parts = [(sent.size, sent.arrays, sent.ns, sent.what)] if sent.arrays else []
        if count > 0 and size >= 0:
            parts.append((size, count, (size * sent.each[0], size * sent.each[1]), 0))
        sending = []
        for octets, arrays, (kept, after), what in parts:
            if calls > 1:  # those before the last lie between these moments
                kept, after = (kept + after) * calls, 0.0
            took = min(round(kept), begin - since) if since else round(kept)
            begin -= took
            event = events.TransferToDevice(
                begin, took, octets * calls, arrays * calls, site.stack, tid, calls=calls, again=what > 0, what=what
            )
            sending.append((event, round(after)))
        return tuple(sending)

    def arrived(self, sending: Sending, most: int) -> int:
        """Tell of uploads that went on for ``most`` ns, at most, after their call; returns for how long they did."""
        after = sum(ns for _, ns in sending)
        share = min(1.0, most / after) if after > 0 else 0.0
        for event, ns in sending:
            self._rec.emit(replace(event, dur=event.dur + int(ns * share)) if ns and share else event)
        return int(after * share)

    def _look(self, site: Site, fun: Any, args: Any, kwargs: Any) -> Sent:
        """Which of the arguments the calls before had, too, and how long they take."""
        repeats = self._rec.repeats
        again, new = list[_Leaf](), list[_Leaf]()
        leaves = islice(_arrays((*enumerate(args), *kwargs.items()), _DEEP, ()), _LEAVES)
        for leaf in sorted(leaves, key=lambda leaf: -leaf.array.nbytes):
            # of 0 dimensions it is a number
            came = leaf.array.ndim > 0 and repeats.again((site.program, leaf.path), leaf.array)
            (again if came else new).append(leaf)
        each = _sum(self._in_call((site.program, leaf.path), leaf.array) for leaf in new)
        size = sum(leaf.array.nbytes for leaf in new)
        what = 0
        if again:
            path, array = again[0]
            known = (site.program, path, array.shape)
            what = self._named.get(known, 0)
            if not what:
                name = f"{_name(fun, path)} " if site.own else ""
                what = self._rec.text(f"{name}{described(array.dtype, array.shape)}")
                if len(self._named) < _KEPT:
                    self._named[known] = what
        return Sent(
            sum(leaf.array.nbytes for leaf in again),
            len(again),
            _sum(self._in_call((site.program, leaf.path), leaf.array) for leaf in again),
            (each[0] / size, each[1] / size) if size else (0.0, 0.0),
            what,
        )

    def _in_call(self, key: _Key, array: Any) -> tuple[float, float]:
        """The same of an argument: a call hands a program to an accelerator only once all that it needs is on its way,
        and until then its caller waits."""
        kept, after = self._ns(key, array)
        return (kept, after) if sys.modules["jax"].default_backend() == "cpu" else (kept + after, 0.0)

    def _ns(self, key: _Key, array: Any) -> tuple[float, float]:
        """ns that the upload of an array takes, as far as known: of the caller, and afterwards. What is not known is
        measured."""
        if array.nbytes < WHOLE:
            return 0.0, 0.0
        took = self._took.get(key, _UNKNOWN)
        if took.times < _MEASURED and self._asked.qsize() < _MEASURED:
            self._asked.put((key, array))
            self._ask(self.measure)
        return took.kept * array.nbytes, (took.whole - took.kept) * array.nbytes

    def measure(self) -> None:
        """In the watcher's thread: bring to the device what is to be measured."""
        while not self._asked.empty():
            key, array = self._asked.get()
            took = self._took.get(key, _UNKNOWN)
            if took.times >= _MEASURED or recorder.active is not self._rec:
                continue
            if len(self._took) >= _KEPT:
                self._took.clear()
            try:
                kept, whole = self._measured(array)
            except (RuntimeError, MemoryError):  # no memory is left, or the program forbids it: the time is not known
                self._took[key] = took._replace(times=_MEASURED)
                continue
            if took.times and took.whole < whole:
                kept, whole = took.kept, took.whole
            self._took[key] = _Took(kept, whole, took.times + 1)

    def _measured(self, array: Any) -> tuple[float, float]:
        """ns for a byte: of the caller, and until it is there."""
        jax: Any = sys.modules["jax"]
        on_host = jax.default_backend() == "cpu"
        if on_host and array.ctypes.data % _ALIGNED == 0 and jax.dtypes.canonicalize_dtype(array.dtype) == array.dtype:
            return 0.0, 0.0
        most = _ON_HOST if on_host else _room(jax)
        if array.nbytes > most:
            array = array[: max(1, len(array) * most // array.nbytes)]
            if array.nbytes > 2 * most:
                return 0.0, 0.0
        self._measuring = threading.get_ident()
        try:
            if not self._call:  # what a call of device_put takes whatever it is given is no part of an upload
                self._call = min(_put(jax, np.zeros(1, array.dtype), self._wait)[1] for _ in range(_MEASURED))
            kept, whole = (max(0, ns - self._call) for ns in _put(jax, array, self._wait))
            return kept / array.nbytes, whole / array.nbytes
        finally:
            self._measuring = 0

    # -- through JAX's own function

    def _timed(self, theirs: Any) -> Any:
        rec = self._rec

        @functools.wraps(theirs)
        def batched_device_put(aval: Any, sharding: Any, xs: Any, devices: Any, *rest: Any, **named: Any) -> Any:
            began = perf_counter_ns()
            out = theirs(aval, sharding, xs, devices, *rest, **named)
            if recorder.active is rec and not self._broken and not within():
                try:
                    self._was_put(aval, xs, began, out)
                except Exception as error:  # nothing may be raised into the program
                    self._broken = True
                    warn(f"uploads by JAX are not observed any more: {type(error).__name__}: {error}")
            return out

        return batched_device_put

    def _was_put(self, aval: Any, xs: Any, began: int, out: Any) -> None:
        took = perf_counter_ns() - began
        arrays = [one for one in xs if isinstance(one, np.ndarray)]
        if not arrays or threading.get_ident() == self._measuring or internals.is_ours(stacks.OWN, self._package):
            return
        rec = self._rec
        self._announce(began)
        place = rec.stack(stacks.user_frames())
        one = arrays[0]
        again = one.ndim > 0 and rec.repeats.again(place, one)
        what = rec.text(described(one.dtype, one.shape)) if again else 0
        after = round(self._ns((place, one.shape), one)[1])  # it goes on for so long, as far as that was measured
        size = aval.dtype.itemsize * sum(array.size for array in arrays)
        event = events.TransferToDevice(began, took, size, len(arrays), place, rec.thread(), again=again, what=what)
        if size >= _FOLLOWED and type(out) is internals.array_class() and not out.is_ready():
            self._ask(functools.partial(self._follow, event, out, after))
        else:
            rec.emit(replace(event, dur=took + after) if after else event)

    def _follow(self, event: events.TransferToDevice, out: Any, after: int) -> None:
        """In the watcher's thread: tell of an upload when it has ended. What had ended before anybody looked took as
        long as measured."""
        took = event.dur + after
        try:
            if not out.is_ready():
                self._wait(out)
                took = perf_counter_ns() - event.t
        except RuntimeError:  # given up meanwhile, or it failed, which the program is told
            pass
        self._rec.emit(replace(event, dur=took))


def _room(jax: Any) -> int:
    """Bytes of the accelerator's memory that a measurement may take."""
    told = jax.local_devices()[0].memory_stats() or {}
    limit, used = told.get("bytes_limit", 0), told.get("bytes_in_use", 0)
    return max(_ON_DEVICE, min(_ON_HOST, (limit - used) // _SPARE)) if limit else _ON_DEVICE


def _put(jax: Any, array: Any, wait: Callable[[Any], Any]) -> tuple[int, int]:
    """ns in which ``device_put`` returns, and in which the array is on the device."""
    began = perf_counter_ns()
    there = jax.device_put(array)
    kept = perf_counter_ns() - began
    wait(there)
    return kept, perf_counter_ns() - began


def _sum(pairs: Iterable[tuple[float, float]]) -> tuple[float, float]:
    kept, after = 0.0, 0.0
    for one in pairs:
        kept, after = kept + one[0], after + one[1]
    return kept, after


def _name(fun: Any, path: tuple[Any, ...]) -> str:
    """An argument as the function's parameter, and the way within: "params['table']"."""
    name = path[0]
    if isinstance(name, int):
        try:
            names = list(inspect.signature(fun).parameters)
        except (TypeError, ValueError):
            names = []
        name = names[name] if name < len(names) else f"argument {name + 1}"
    return str(name) + "".join(f"[{step!r}]" for step in path[1:])


def _arrays(items: Any, deep: int, path: tuple[Any, ...]) -> Iterator[_Leaf]:
    """The NumPy arrays among values with their keys, within plain containers."""
    for key, one in items:
        kind = type(one)
        if isinstance(one, np.ndarray):
            yield _Leaf((*path, key), one)
        elif deep > 1 and kind in (tuple, list):
            yield from _arrays(enumerate(one), deep - 1, (*path, key))
        elif deep > 1 and kind is dict:
            yield from _arrays(one.items(), deep - 1, (*path, key))


def _of_the_host(values: Any, deep: int) -> tuple[int, int]:
    """Bytes and number of NumPy arrays and Python numbers."""
    size = count = 0
    array = internals.array_class()
    for one in values:
        kind = type(one)
        if kind is array:  # as most are: a call may have thousands
            continue
        if kind in _NUMBERS:
            size, count = size + 4, count + 1
        elif isinstance(one, _OF_NUMPY):
            size, count = size + one.nbytes, count + 1
        elif deep and kind in (tuple, list, dict):
            more = _of_the_host(one.values() if kind is dict else one, deep - 1)
            size, count = size + more[0], count + more[1]
    return size, count
