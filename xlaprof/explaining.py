"""``explain``: what ``torch.compile`` or ``jax.jit`` makes of one function, over several calls."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import tempfile
from collections.abc import Iterator
from types import FunctionType
from typing import Any, NamedTuple

from xlaprof import log
from xlaprof.analysis.compiled.generated import in_words
from xlaprof.analysis.model import Report
from xlaprof.analysis.names import Names
from xlaprof.analysis.places import short
from xlaprof.analysis.run import Run
from xlaprof.errors import UserError
from xlaprof.events import (
    DynamoCompile,
    DynamoLimit,
    Event,
    GeneratedCode,
    GraphBreak,
    JitCompile,
    Recompile,
    Stack,
    Step,
    Text,
)
from xlaprof.recording import recorder
from xlaprof.recording.trace import StepTrace
from xlaprof.text.quantities import duration, plural
from xlaprof.text.safe import for_html, for_terminal
from xlaprof.text.strings import printable

#: kinds of events that have a line
_SHOWN = DynamoCompile | GraphBreak | Recompile | JitCompile | DynamoLimit | GeneratedCode


class Call(NamedTuple):
    """One call, and what had to be compiled for it. Seconds."""

    took_s: float
    graphs: int  # compiled
    operations: int  # in them
    compile_s: float
    lines: tuple[str, ...]  # for people: graphs with their guards and phases, breaks, why it was compiled again
    error: str = ""  # what the call raised


class Explanation(NamedTuple):
    """What :func:`explain` returns: ``calls``, and the ``report`` on all of them (findings, phases by function).

    It prints, and notebooks show it.
    """

    name: str
    by: str
    calls: tuple[Call, ...]
    report: Report

    def __str__(self) -> str:
        return for_terminal("\n".join(map(printable, self._lines())))

    def _repr_html_(self) -> str:
        return f"<pre>{for_html(str(self))}</pre>"

    def _lines(self) -> Iterator[str]:
        yield f"{self.name} by {self.by}, {plural(len(self.calls), 'call')}"
        for number, call in enumerate(self.calls, 1):
            made = f"{plural(call.graphs, 'graph')} of {plural(call.operations, 'operation')} compiled"
            what = f"{made} in {duration(call.compile_s)}" if call.graphs or call.compile_s else "nothing compiled"
            yield f"call {number}: {duration(call.took_s)}, {what}{', ' * bool(call.error)}{call.error}"
            yield from (f"  {line}" for line in call.lines)
        for number, finding in enumerate(self.report.findings, 1):
            yield f"finding {number}, {finding.kind} at {short(finding.place)}: {finding.cause}"
            yield f"  Fix: {finding.advice}"


def explain(function: Any, *calls: Any, backend: Any = "inductor", dynamic: bool | None = None) -> Explanation:
    """What ``torch.compile`` or ``jax.jit`` makes of ``function`` over ``calls``: graphs, breaks, guards, phases.

    ::

        print(xlaprof.explain(score, (tokens,), (longer,), backend="eager"))

    Each call is a tuple of arguments, a dict of named ones, or one argument alone. They are made, in order, with a copy
    of the function: what the program has compiled stays, and PyTorch's random state; what the function itself writes
    (buffers, files) is written. A function that ``jax.jit`` made, or that is given arrays of JAX's, is explained by
    JAX, without donation; all others by ``torch.compile`` with ``backend`` and ``dynamic``. A call that raises is the
    last. Raises :class:`RecordingError` while a recording is on, and for what is no function.
    """
    if recorder.active is not None:
        raise recorder.RecordingError("explain() compiles what the program does not: stop the recording first")
    given = [_arguments(call) for call in calls]
    if not given:
        raise recorder.RecordingError("explain() needs the arguments of a call: explain(function, (x, y))")
    by_jax = _is_jax(function, given)
    by = "jax.jit" if by_jax else f"torch.compile(backend={backend if isinstance(backend, str) else 'own'!r})"
    with tempfile.TemporaryDirectory(prefix="xlaprof-") as folder, contextlib.ExitStack() as around:
        path = os.path.join(folder, "explain.log")
        try:
            compiled = _of_jax(function) if by_jax else _of_torch(function, backend, dynamic, around)
        except TypeError as error:
            raise recorder.RecordingError(f"explain() takes a function: {error}") from None
        with recorder.record(path, detail="full"):
            errors = _make(compiled, given)
        events = list(log.read(path))
    name = getattr(function, "__name__", "") or type(getattr(function, "_orig_mod", function)).__name__
    return Explanation(name, by, tuple(_calls(events, errors)), Run().feed_all(events).report())


def _arguments(call: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(call, tuple):
        return call, {}
    return ((), call) if isinstance(call, dict) else ((call,), {})


def _is_jax(function: Any, given: list[tuple[tuple[Any, ...], dict[str, Any]]]) -> bool:
    jax: Any = sys.modules.get("jax")
    if jax is None:
        return False
    if type(function).__name__ == "PjitFunction":
        return True
    leaves = jax.tree_util.tree_leaves(given)
    return any(isinstance(leaf, jax.Array) for leaf in leaves)


def _of_jax(function: Any) -> Any:
    import jax

    from xlaprof.sources.dynamo.apart import copied  # a function with code of its own is a new one to JAX, too

    options = getattr(function, "_jit_info", None)
    inner = getattr(function, "__wrapped__", function)
    static = {"static_argnums": options.static_argnums} if options is not None else {}
    return jax.jit(copied(inner) if isinstance(inner, FunctionType) else inner, **static)


def _of_torch(function: Any, backend: Any, dynamic: bool | None, around: contextlib.ExitStack) -> Any:
    try:
        import torch
    except ImportError:
        raise UserError("explain() needs torch, or a function of JAX's") from None
    from xlaprof.sources.dynamo.apart import apart, copied

    copy = copied(function)
    around.enter_context(apart())
    known = inspect.signature(torch.compile).parameters
    options: dict[str, Any] = {"isolate_recompiles": True} if "isolate_recompiles" in known else {}
    return torch.compile(copy, backend=backend, dynamic=dynamic, **options)


def _make(compiled: Any, given: list[tuple[tuple[Any, ...], dict[str, Any]]]) -> list[str]:
    """Make the calls; what each raised."""
    errors = []
    for number, (args, kwargs) in enumerate(given):
        error = ""
        with StepTrace("call", step_num=number):
            try:
                compiled(*args, **kwargs)
            except Exception as raised:
                error = f"raised {type(raised).__name__}: {str(raised).splitlines()[0] if str(raised) else ''}".strip()
        errors.append(error)
        if error:
            break
    return errors


def _calls(events: list[Event], errors: list[str]) -> Iterator[Call]:
    names = Names()
    steps = []
    for event in events:
        if isinstance(event, Text):
            names.on_text(event)
        elif isinstance(event, Stack):
            names.on_stack(event)
        elif isinstance(event, Step):
            steps.append(event)
    for step, error in zip(steps, errors, strict=False):
        made = [event for event in events if isinstance(event, _SHOWN) and step.t <= event.t <= step.t + step.dur]
        compiles = [event for event in made if isinstance(event, DynamoCompile | JitCompile)]
        graphs = [event for event in compiles if isinstance(event, JitCompile) or (event.compiled and event.ops)]
        yield Call(
            step.dur / 1e9,
            len(graphs),
            sum(event.ops for event in graphs),
            sum(event.dur for event in compiles) / 1e9,
            tuple(_line(event, names) for event in made),
            error,
        )


def _line(event: Any, names: Names) -> str:
    if isinstance(event, GraphBreak):
        hint = f" {event.hint}" if event.hint else ""
        return f"break at {short(names.place(event.stack))}: {event.reason}.{hint}"
    if isinstance(event, Recompile):
        why = [
            f"{guard.subject} from {guard.old} to {guard.new}" if guard.new else guard.text for guard in event.guards
        ]
        return f"compiled again ({names.text(event.func)}): {'; '.join(why) or 'not known why'}"
    if isinstance(event, DynamoLimit):
        return f"{event.limit} is {event.value}: what fits no version of {names.text(event.func)} runs eagerly"
    if isinstance(event, JitCompile):
        changes = [f"{one.kind} of {one.name} from {one.old} to {one.new}" for one in event.changes]
        again = f"compiled again: {'; '.join(changes)}; " if changes else ""
        parts = {"tracing": event.trace, "lowering": event.lower, "XLA": event.backend}
        phases = ", ".join(f"{phase} {duration(ns / 1e9)}" for phase, ns in parts.items())
        made = f"{plural(event.ops, 'operation')}, {duration(event.dur / 1e9)} ({phases})"
        return f"{names.text(event.func)}: {again}{made}"
    after = f", behind line {names.place(event.resumed).line}" if event.resumed else ""
    if isinstance(event, GeneratedCode):
        return f"{names.text(event.func)}{after}: {'; '.join(in_words([event]))}"
    longest = sorted(event.phases.items(), key=lambda one: -one[1])
    spent = f" ({', '.join(f'{phase} {duration(ns / 1e9)}' for phase, ns in longest)})" if longest else ""
    what = "runs as plain Python"
    if event.compiled:
        what = f"{plural(event.ops, 'operation')}, {plural(event.guards, 'guard')}"
    backward = ", backward" if event.backward else ""
    return f"{names.text(event.func)}{after}{backward}: {what}, {duration(event.dur / 1e9)}{spent}"
