"""What users write in their code: ``Trace`` scopes and ``StepTrace`` marks.

Both are context managers and decorators, cost about a hundred nanoseconds where nothing is recorded, and let
every exception through untouched. Scopes that are open are kept in a context variable, not in the instance:
so one instance may be entered again inside itself and by several threads at once, and asyncio tasks that take
turns on a thread each see their own nesting.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import operator
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Self, TypeVar

from . import recorder
from .events import Scope, Step

F = TypeVar("F", bound=Callable[..., Any])
Plain = str | int | float | bool | None

#: (scope, depth, recording, the one around it, began, step number): a linked list, innermost first
_Open = tuple["Trace", int, "recorder.Recorder", Any, int, int]
_open: ContextVar[_Open | None] = ContextVar("xlaprof_open_scopes", default=None)

# bound once, and spelled out below rather than shared: this is the hot path of the observed program
_now = time.perf_counter_ns
_get_open = _open.get
_set_open = _open.set
_PLAIN = frozenset({str, int, float, bool, type(None)})


class Trace:
    """A named scope of host time: ``with Trace("forward", layer=3): ...`` or ``@Trace("forward")``.

    ``metadata`` values that are not str, int, float, bool or None are recorded as the name of their type
    (and the shape, of an array): a tensor is never read, so nothing waits for the device.

    As a decorator: a coroutine function is timed from call to return, waiting included; a generator (sync or
    async) is timed while its body runs, one scope for each resumption, so what its consumer does in between
    is not counted.
    """

    __slots__ = ("_entered", "_metadata", "_name")

    def __init__(self, name: str, /, **metadata: object) -> None:
        self._name = name
        self._metadata: dict[str, Any] = metadata

    def __enter__(self) -> Self:
        rec = recorder.active
        if rec is not None:
            outer = _get_open()
            if outer is None or outer[2] is not rec:
                entered: _Open = (self, 0, rec, None, _now(), 0)
            else:
                entered = (self, outer[1] + 1, rec, outer, _now(), 0)
            self._entered: _Open | None = entered
            _set_open(entered)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        rec = recorder.active
        if rec is not None:
            end = _now()
            entered = _get_open()
            if entered is not None and entered[0] is self:
                _set_open(entered[3])
                self._entered = None
            else:
                entered = self._find_entry(entered)
            if entered is not None and entered[2] is rec:
                name = self._name
                metadata = self._metadata
                if metadata and not _PLAIN.issuperset(map(type, metadata.values())):
                    metadata = self._metadata = _plain(metadata)
                try:
                    tid = rec.threads.tid
                except AttributeError:
                    tid = rec.thread()
                began = entered[4]
                scope = Scope(
                    rec.texts.get(name) or rec.text(name),
                    began,
                    end - began,
                    tid,
                    entered[1],
                    metadata,
                    "" if kind is None else kind.__name__,
                )
                queue = rec.queue
                if len(queue) < rec.limit:
                    queue.append(scope)
                else:
                    rec.emit(scope)

    def _find_entry(self, innermost: _Open | None) -> _Open | None:
        """The entry that this exit ends, where it is not the innermost of its context.

        Scopes left open inside it (a generator dropped halfway) are closed with it. A scope left in another
        context than it was entered in, as asynchronous generators and fixtures do, is known by its instance.
        None: it was entered before the recording began.
        """
        entry = innermost
        while entry is not None:
            if entry[0] is self:
                _set_open(entry[3])
                return entry
            entry = entry[3]
        entry, self._entered = getattr(self, "_entered", None), None
        return entry

    def __call__(self, function: F) -> F:
        if isinstance(function, staticmethod | classmethod):
            return type(function)(self(function.__func__))
        if not callable(function):
            raise TypeError(f"{type(self).__name__} decorates functions, not {type(function).__name__}")
        return _decorate(self, function)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r})"


class StepTrace(Trace):
    """One step of a loop: ``with StepTrace("train", step_num=i): ...``.

    Without ``step_num`` the steps of a name are counted from 0 over the life of the process, recorded or not.
    """

    __slots__ = ("_num",)

    def __init__(self, name: str, /, step_num: int | None = None, **metadata: object) -> None:
        super().__init__(name, **metadata)
        self._num = None if step_num is None else _step_number(step_num)

    def __enter__(self) -> Self:
        num = _next_number(self._name) if self._num is None else self._num
        rec = recorder.active
        if rec is not None:
            outer = _get_open()
            if outer is not None and outer[2] is not rec:
                outer = None
            # a step is no scope: what is inside it is as deep as the step itself
            began = _now()
            entered: _Open = (self, -1 if outer is None else outer[1], rec, outer, began, num)
            self._entered = entered
            _set_open(entered)
            rec.step_opened(began)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        rec = recorder.active
        if rec is not None:
            end = _now()
            entered = self._find_entry(_get_open())
            self._entered = None
            if entered is not None and entered[2] is rec:
                _, _, _, _, began, num = entered
                error = "" if kind is None else kind.__name__
                rec.step(
                    Step(rec.text(self._name), num, began, end - began, rec.thread(), _plain(self._metadata), error)
                )


_counts: dict[str, itertools.count[int]] = {}


def _next_number(name: str) -> int:
    count = _counts.get(name)
    if count is None:
        count = _counts.setdefault(name, itertools.count())
    return next(count)


def _step_number(value: object) -> int:
    """An int as it is, a NumPy integer as an int; anything else might wait for a device."""
    if isinstance(value, int):
        return int(value)
    if type(value).__module__ == "numpy":
        return operator.index(value)  # type: ignore[arg-type]
    raise TypeError(f"step_num must be an int, not {_describe(value)}: pass the loop's own counter")


def _plain(metadata: dict[str, object]) -> dict[str, Plain]:
    return {key: value if type(value) in _PLAIN else _simplify(value) for key, value in metadata.items()}  # type: ignore[misc]


def _simplify(value: object) -> Plain:
    """Subclasses of the plain types lose their class; everything else is described, never read."""
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, str):
        return str.__str__(value)
    return _describe(value)


def _describe(value: object) -> str:
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if kind.__module__.partition(".")[0] not in ("torch", "jax", "jaxlib", "numpy", "xlaprof"):
        return name
    # of these the shape is host knowledge; a foreign class's `shape` might do anything
    shape = getattr(value, "shape", None)
    return f"{name}{list(shape)}" if isinstance(shape, tuple) else name


def _decorate(scope: Trace, function: F) -> F:
    wrapper: Callable[..., Any]
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            body = function(*args, **kwargs)
            sent: Any = None
            error: BaseException | None = None
            try:
                while True:
                    with scope:
                        try:
                            item = await (body.asend(sent) if error is None else body.athrow(error))
                        except StopAsyncIteration:
                            return
                    sent = error = None
                    try:
                        sent = yield item
                    except GeneratorExit:
                        raise
                    except BaseException as thrown:
                        error = thrown
            finally:
                await body.aclose()

    elif inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            body = function(*args, **kwargs)
            sent: Any = None
            error: BaseException | None = None
            try:
                while True:
                    with scope:
                        try:
                            item = body.send(sent) if error is None else body.throw(error)
                        except StopIteration as end:
                            return end.value
                    sent = error = None
                    try:
                        sent = yield item
                    except GeneratorExit:
                        raise
                    except BaseException as thrown:
                        error = thrown
            finally:
                body.close()

    elif inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            with scope:
                return await function(*args, **kwargs)

    else:

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with scope:
                return function(*args, **kwargs)

    return wrapper  # type: ignore[return-value]
