"""How events are drawn: in which rows of the timeline, as what, and what is told of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from xlaprof import events as ev
from xlaprof.text.quantities import plural, size_text

#: the rows, as they are drawn: the first number of a key. The second is a thread or a device, the third a depth.
STEPS, SCOPES, HOST, SEEN, TRANSFERS, DEVICE = range(6)

DEEPEST = 12  # nesting of scopes: deeper ones share a row
THREADS = 12  # further ones share a row
DEVICES = 16
LATEST = 1 << 60  # ns: later moments come from a damaged log


class Kind(NamedTuple):
    """What is drawn alike: a part of a step (``xlaprof.text.parts``), and a name, where several are told apart."""

    part: str
    name: int = 0  # Text id


class Told(NamedTuple):
    """What is known of one stretch."""

    stack: int = 0  # Stack id
    text: str = ""
    op: int = 0  # Text id
    after: int = 0  # Stack id of the line after it, of plain Python


class Drawn(NamedTuple):
    """How events of a kind are drawn."""

    rows: tuple[int, ...]
    part: str  # "": what its state is called
    tell: Callable[[Any], Told]
    name: str = ""  # the field with the Text id that tells several apart
    kept: bool = False  # an event is not larger than what is told of it, so it is kept, and told when that is asked for
    rest: str = ""  # unless it has something in this field

    def detail(self, event: Any) -> Any:
        """What is kept of an event beside its stretch, for :func:`told_of`."""
        return event if self.kept and not (self.rest and getattr(event, self.rest)) else self.tell(event)


def told_of(detail: Any) -> Told:
    """What is known of a stretch, by its ``detail``. Of most stretches nobody asks for it."""
    drawn = DRAWN.get(type(detail))
    known: Told = detail if drawn is None else drawn.tell(detail)
    return known


def _tell_compile(event: ev.Compile) -> Told:
    cached = ", from the persistent cache" if event.cached else ""
    return Told(event.stack, f"graph {event.program}: {plural(event.ops, 'operation')}{cached}")


def _tell_execution(event: ev.Execute) -> Told:
    if not event.program:  # of a device that is watched
        return Told(event.stack, f"busy, {plural(event.calls, 'time')} with short gaps" if event.calls > 1 else "busy")
    many = f", {event.calls:,} programs" if event.calls > 1 else ""
    failed = f", failed: {event.error}" if event.error else ""
    return Told(event.stack, f"graph {event.program}{many}{failed}")


#: Kinds of events that are drawn. A digest has its device time beside.
DRAWN: dict[type, Drawn] = {
    ev.Step: Drawn((STEPS,), "step", lambda e: Told(text=f"{e.num}"), "name", kept=True, rest="meta"),
    ev.StepDigest: Drawn((STEPS,), "step", lambda e: Told(text=f"{e.num}, recorded as sums"), "name"),
    ev.Scope: Drawn(
        (SCOPES,),
        "named scopes",
        lambda e: Told(e.stack, f"left by {e.error}" if e.error else ""),
        "name",
        kept=True,
        rest="meta",
    ),
    ev.Compile: Drawn((HOST,), "compile", _tell_compile),
    ev.DynamoCompile: Drawn(
        (HOST,),
        "compile",
        lambda e: Told(e.stack, f"torch.compile {e.compile}: {plural(e.ops, 'operation')}", e.func),
    ),
    ev.JitCompile: Drawn((HOST,), "compile", lambda e: Told(e.stack, "jit", e.func)),
    ev.GraphBreak: Drawn((HOST,), "graph break", lambda e: Told(e.stack, e.reason)),
    ev.Barrier: Drawn(
        (HOST,),
        "dispatch",
        lambda e: Told(e.stack, f"barrier ({e.trigger}): {plural(e.ops, 'operation')}"),
        kept=True,
        rest="turns",
    ),
    ev.TransferFromDevice: Drawn(
        (HOST, TRANSFERS),
        "transfer wait",
        lambda e: Told(e.stack, f"from the device, {size_text(e.bytes)}", e.op),
        kept=True,
    ),
    ev.TransferToDevice: Drawn(
        (HOST, TRANSFERS), "upload", lambda e: Told(e.stack, f"to the device, {size_text(e.bytes)}"), kept=True
    ),
    ev.DeviceWait: Drawn((HOST,), "transfer wait", lambda e: Told(e.stack, "wait for the device"), kept=True),
    ev.Fallback: Drawn((HOST,), "fallback", lambda e: Told(e.stack, "", e.op), kept=True),
    ev.Gc: Drawn((HOST,), "garbage collection", lambda e: Told(e.stack), kept=True),
    ev.DataWait: Drawn((HOST,), "data wait", lambda e: Told(e.stack), kept=True),
    ev.Hole: Drawn((HOST,), "python", lambda e: Told(e.before, after=e.after), kept=True),
    ev.Sample: Drawn((SEEN,), "", lambda e: Told(e.stack, "as seen from outside"), kept=True),
    ev.Look: Drawn((SEEN,), "", lambda e: Told(e.stack, "as seen from outside"), kept=True),
    ev.Execute: Drawn((DEVICE,), "device", _tell_execution, kept=True),
}
