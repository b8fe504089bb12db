"""What users write in their code: ``Trace`` scopes and ``StepTrace`` marks.

Both are context managers and decorators, cost about a hundred nanoseconds where nothing is recorded, and let every
exception through untouched. Open scopes are kept per thread and per asyncio task, not in the instance: one instance may
be entered again inside itself and by several threads at once, and tasks that take turns on a thread each see their own
nesting. (Not in a context variable: CPython 3.11 corrupts a context in which a finalizer, run by a collection inside
``ContextVar.set``, sets one too.)
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import time
from collections.abc import AsyncGenerator, Callable, Generator
from types import TracebackType
from typing import Any, Self, TypeVar

from xlaprof.events import Scope, Step

from . import recorder, stacks

F = TypeVar("F", bound=Callable[..., Any])
Plain = str | int | float | bool | None

#: (scope, depth of scopes inside it, recording, stack it is on, begin, step number)
Entry = tuple["Trace", int, "recorder.Recorder", "list[Any]", int, int]

# Trace's __enter__ and __exit__ are not divided up: they are the observed program's hot path.
_now = time.perf_counter_ns
_PLAIN = frozenset({str, int, float, bool, type(None)})


class Trace:
    """A named scope of host time: ``with Trace("forward", layer=3): ...`` or ``@Trace("forward")``.

    ``metadata`` values that are not str, int, float, bool or None are recorded as the name of their type (an array's
    with its shape): a tensor is never read, so nothing waits for the device.

    As a decorator: a coroutine function is timed from call to return, waiting included; a generator (sync or async) is
    timed while its body runs, one scope for each resumption, without what its consumer does in between.
    """

    __slots__ = ("_entered", "_metadata", "_name")

    def __init__(self, name: str, /, **metadata: object) -> None:
        self._name = name
        self._metadata: dict[str, Any] = metadata

    # A scope until something is recorded. The first recording puts the two methods below in their place.
    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        pass

    def _enter_recorded(self) -> Self:
        rec = recorder.active
        if rec is not None and not rec.in_dynamo():
            stack: list[Any] = rec.here.open
            if rec.running_loop() is None:
                inner = stack[-1][1] + 1 if stack else 1
            else:
                stack, depth = rec.here.of_task()
                inner = depth + 1
            rec.edge = now = _now()
            entered: Entry = (self, inner, rec, stack, now, 0)
            stack.append(entered)
            self._entered: Entry | None = entered
        return self

    def _exit_recorded(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        rec = recorder.active
        if rec is not None:
            try:
                entered = self._entered
            except AttributeError:  # never entered in a recording, or only where Dynamo traced it
                return
            if entered is None and rec.in_dynamo():
                return
            rec.edge = end = _now()
            stack = rec.here.open
            if stack and stack[-1] is entered:
                stack.pop()
                self._entered = None
            else:
                entered = self._find_entry(rec.here.of_task()[0])
            if entered is not None and entered[2] is rec:
                name = self._name
                metadata = self._metadata
                if metadata:
                    for value in metadata.values():
                        if type(value) not in _PLAIN:
                            metadata = self._metadata = _plain(metadata)
                            break
                began = entered[4]
                place = 0
                ident = rec.scope_names.get(name)
                if ident is None:
                    ident, place = rec.first_scope(name, stacks.user_frames())
                scope = Scope(
                    ident,
                    began,
                    end - began,
                    stack.tid,
                    entered[1] - 1,
                    metadata,
                    "" if kind is None else kind.__name__,
                    place,
                )
                queue = rec.queue
                if len(queue) < rec.limit:
                    queue.append(scope)
                else:
                    rec.emit(scope)
                if end > rec.due:
                    rec.let_writer_in(end)

    def _find_entry(self, stack: list[Entry]) -> Entry | None:
        """The entry that this exit ends, where it is not the last on its thread's or task's stack.

        Scopes may end in another order than they began (a generator closed late), and elsewhere than they began
        (other tasks tear down asynchronous generators and fixtures than set them up).
        None: entered before the recording began.
        """
        for position in range(len(stack) - 1, -1, -1):
            if stack[position][0] is self:
                return stack.pop(position)
        entered, self._entered = getattr(self, "_entered", None), None
        if entered is not None:
            with contextlib.suppress(ValueError):  # another thread was quicker
                entered[3].remove(entered)
        return entered

    def __call__(self, function: F) -> F:
        if isinstance(function, staticmethod | classmethod):
            return type(function)(self(function.__func__))
        if not callable(function):
            raise TypeError(f"{type(self).__name__} decorates functions, not {type(function).__name__}")
        return _decorate(self, function)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r})"


def _record_scopes() -> None:
    """From the first recording on scopes record: until then a scope costs no more than two empty methods.

    The end of a recording does not undo this: exit handlers may still be recorded when it begins.
    """
    Trace.__enter__ = Trace._enter_recorded  # type: ignore[method-assign]
    Trace.__exit__ = Trace._exit_recorded  # type: ignore[method-assign]


recorder.at_start(_record_scopes)


class StepTrace(Trace):
    """One step of a loop: ``with StepTrace("train", step_num=i): ...``.

    Without ``step_num`` the steps of a name are counted from 0 over the life of the process, recorded or not. With
    ``total=1000`` at the first one ``xlaprof live`` says how long the rest of that many will take.
    """

    __slots__ = ("_num",)

    def __init__(self, name: str, /, step_num: int | None = None, **metadata: object) -> None:
        super().__init__(name, **metadata)
        self._num = None if step_num is None else _step_number(step_num)

    def __enter__(self) -> Self:
        num = _next_number(self._name) if self._num is None else self._num
        rec = recorder.active
        if rec is not None and not rec.in_dynamo():
            of_thread = rec.here.open
            stack: list[Any] = of_thread
            if rec.running_loop() is None:
                depth = stack[-1][1] if stack else 0
            else:
                stack, depth = rec.here.of_task()
            # a step is no scope: scopes inside it are as deep as the step itself
            began = _now()
            entered: Entry = (self, depth, rec, stack, began, num)
            stack.append(entered)
            self._entered = entered
            rec.step_opened(began, of_thread.tid)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        rec = recorder.active
        if rec is not None and not rec.in_dynamo():
            end = _now()
            stack = rec.here.open
            entered = getattr(self, "_entered", None)
            if stack and stack[-1] is entered:
                stack.pop()
            else:
                entered = self._find_entry(rec.here.of_task()[0])
            self._entered = None
            if entered is not None and entered[2] is rec:
                began = entered[4]
                metadata = self._metadata
                if metadata:
                    metadata = _plain(metadata)
                error = "" if kind is None else kind.__name__
                name = rec.texts.get(self._name) or rec.text(self._name)
                rec.step(Step(name, entered[5], began, end - began, stack.tid, metadata, error))
        if step_ended:
            for call in tuple(step_ended):
                call()


#: called when a StepTrace has ended, recorded or not
step_ended: list[Callable[[], None]] = []
_counts: dict[str, itertools.count[int]] = {}


def _next_number(name: str) -> int:
    count = _counts.get(name)
    if count is None:
        count = _counts.setdefault(name, itertools.count())
    return next(count)


def _step_number(value: object) -> int:
    """Ints and NumPy integers; reading anything else might wait for a device."""
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
    # the host knows the shape of these; a foreign class's `shape` might do anything
    shape = getattr(value, "shape", None)
    return f"{name}{list(shape)}" if isinstance(shape, tuple) else name


def _decorate(scope: Trace, function: F) -> F:
    import inspect  # slow to import, and of use to decorators only

    wrapper: Callable[..., Any]
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            body = function(*args, **kwargs)
            resume, given = body.asend, None
            try:
                while True:
                    with scope:
                        try:
                            item = await resume(given)
                        except StopAsyncIteration:
                            return
                    given = None  # it may be a tensor: do not keep it alive
                    try:
                        resume, given = body.asend, (yield item)
                    except GeneratorExit:
                        raise
                    except BaseException as thrown:
                        resume, given = body.athrow, thrown
            finally:
                await body.aclose()

    elif inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            body = function(*args, **kwargs)
            resume, given = body.send, None
            try:
                while True:
                    with scope:
                        try:
                            item = resume(given)
                        except StopIteration as end:
                            return end.value
                    given = None
                    try:
                        resume, given = body.send, (yield item)
                    except GeneratorExit:
                        raise
                    except BaseException as thrown:
                        resume, given = body.throw, thrown
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
