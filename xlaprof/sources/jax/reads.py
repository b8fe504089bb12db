"""Values that the host reads from the device, and waits for: ``float(loss)``, ``if``, ``print``, ``.item()``...

All of these look at one attribute of an array, which is watched while a recording is on. What NumPy reads through the
buffer protocol, as ``np.asarray`` does on the CPU, where it copies nothing, cannot be seen.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from xlaprof import events
from xlaprof.recording import recorder, stacks

from . import internals
from .callbacks import within

if TYPE_CHECKING:
    from xlaprof.recording.recorder import Recorder

NUMBER, ARRAY, CHECK = "jax.Array: one number", "jax.Array: a copy", "jax_debug_nans"


class Reads:
    """Attached to arrays for one recording."""

    def __init__(
        self, rec: Recorder, package: str, announce: Callable[[int], None], lowers: Callable[[], bool]
    ) -> None:
        """``lowers``: whether JAX lowers a program now, in this thread: what it copies then are constants of it."""
        self._lowers = lowers
        self._rec, self._package, self._announce = rec, package, announce
        self._undo: list[tuple[Any, str, Any]] = []
        self._local = threading.local()

    def attach(self) -> None:
        """What this JAX has not is not watched."""
        import jax

        array = internals.array_class()
        value = vars(array).get("_value")
        if isinstance(value, property) and value.fget is not None:
            self._put(array, "_value", property(self._reading(value.fget), doc=value.__doc__))
        item = vars(array).get("item")
        if callable(item):
            self._put(array, "item", self._item(item))
        for owner, name in ((array, "block_until_ready"), (jax, "block_until_ready")):
            theirs = vars(owner).get(name)
            if callable(theirs):
                self._put(owner, name, self._waiting(theirs))

    def _put(self, owner: Any, name: str, mine: Any) -> None:
        self._undo.append((owner, name, vars(owner)[name]))
        setattr(owner, name, mine)

    def detach(self) -> None:
        for owner, name, theirs in reversed(self._undo):
            setattr(owner, name, theirs)
        self._undo.clear()

    def _reading(self, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
        rec = self._rec

        def _value(array: Any) -> Any:
            if array._npy_value is not None or recorder.active is not rec or within():
                return read(array)
            ready, start = array.is_ready(), perf_counter_ns()
            value = read(array)
            self._tell(start, ready, value.size, value.nbytes)
            return value

        return _value

    def _item(self, read: Callable[..., Any]) -> Callable[..., Any]:
        rec = self._rec

        @functools.wraps(read)
        def item(array: Any, *args: Any) -> Any:
            if array._npy_value is not None or recorder.active is not rec or within():
                return read(array, *args)
            ready, start, told = array.is_ready(), perf_counter_ns(), self._told()
            value = read(array, *args)
            if self._told() == told:  # or else it was read by the attribute
                self._tell(start, ready, 1, array.dtype.itemsize)
            return value

        return item

    def check(self, look: Callable[..., None], called: tuple[Any, ...]) -> None:
        """JAX looks for NaN in all that a call returned, and waits for it: that is one read."""
        rec, local, start = self._rec, self._local, perf_counter_ns()
        if recorder.active is not rec or within():
            return look(*called)
        local.checks = True
        try:
            return look(*called)
        finally:
            local.checks, end = False, perf_counter_ns()
            if not self._lowers() and not internals.is_ours(stacks.OWN, self._package):
                op, stack = rec.text(CHECK), rec.stack(stacks.user_frames())
                rec.emit(events.TransferFromDevice(start, end - start, end - start, 0, op, stack, rec.thread()))

    def _told(self) -> int:
        return getattr(self._local, "told", 0)

    def _tell(self, start: int, ready: bool, size: int, bytes: int) -> None:
        end, rec = perf_counter_ns(), self._rec
        self._local.told = self._told() + 1
        if getattr(self._local, "checks", False):
            return
        if not self._lowers() and not internals.is_ours(stacks.OWN, self._package):
            self._announce(start)
            op, stack = rec.text(NUMBER if size == 1 else ARRAY), rec.stack(stacks.user_frames())
            wait = 0 if ready else end - start
            rec.emit(events.TransferFromDevice(start, end - start, wait, bytes, op, stack, rec.thread()))

    def _waiting(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        rec, local = self._rec, self._local

        def block_until_ready(x: Any) -> Any:
            if recorder.active is not rec or getattr(local, "waits", False):
                return wait(x)
            local.waits, start = True, perf_counter_ns()
            try:
                return wait(x)
            finally:
                local.waits = False
                end = perf_counter_ns()
                if not internals.is_ours(stacks.OWN, self._package):
                    self._announce(start)
                    rec.emit(events.DeviceWait(start, end - start, rec.stack(stacks.user_frames()), rec.thread()))

        block_until_ready.__doc__ = wait.__doc__  # what it replaces may be C++, without the rest of a function's names
        return block_until_ready
