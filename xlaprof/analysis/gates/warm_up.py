"""The part of a recording after a step, which ``--after-step`` counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from xlaprof.analysis.run import Run
from xlaprof.events import (
    AnyEvent,
    Barrier,
    Device,
    Dropped,
    End,
    Header,
    Stack,
    Step,
    StepDigest,
    Text,
    Thread,
)

from .limits import BudgetError

#: Gives the events of a recording from its beginning, each time it is called.
Read = Callable[[], Iterable[AnyEvent]]

#: events about ids and the recording, not about a moment of it
_TIMELESS = (Header, Device, Text, Stack, Thread, Dropped, End)


def after_step(read: Read, run: Run, step: int, path: str) -> tuple[Run, int]:
    """The recording after the end of step ``step``, and that moment. Raises :class:`BudgetError` if nothing follows.

    ``run``: the whole recording, settled. Where steps have no names, step n ends at visit n + 1 of the main barrier.
    """
    if any(run.steps):
        moments: list[int] = []
        rest = Run(since_step=step + 1).feed_all(_noting(read(), step, moments))
        if rest.waiting or not any(tally.count for tally in rest.steps.values()):
            raise BudgetError(f"{path} has no step after {step} (the last one is {run.step_num}): nothing to check")
        return rest.settled(), moments[0]
    visits = {stack: site.executed for stack, site in run.sites.items() if site.trigger != "read" and site.executed}
    if not visits:
        raise BudgetError(
            f"{path} has neither named steps nor barriers, so there is nothing after step {step} to check"
        )
    main = max(visits, key=visits.__getitem__)
    rest, begin = _after_visit(read(), main, step + 1)
    if not any(tally.count for tally in rest.steps.values()):
        raise BudgetError(
            f"{path} has no step after {step} (no named ones, and {visits[main]} up to a barrier): nothing to check"
        )
    return rest.settled(), begin


def _noting(events: Iterable[AnyEvent], step: int, moments: list[int]) -> Iterator[AnyEvent]:
    """Passes the events on, and notes when step ``step`` ended, or one with a higher number began."""
    for event in events:
        if not moments and isinstance(event, Step | StepDigest) and event.num >= step:
            moments.append(event.t + event.dur if event.num == step else event.t)
        yield event


def _after_visit(events: Iterable[AnyEvent], main: int, nth: int) -> tuple[Run, int]:
    """The recording after the ``nth`` visit of the barrier ``main``, and the end of that visit."""
    rest = Run()
    visits = 0
    begin: int | None = None
    for event in events:
        if isinstance(event, _TIMELESS):
            rest.feed(event)
        elif begin is not None:
            if getattr(event, "t", begin) >= begin:  # executions are recorded late
                rest.feed(event)
        elif isinstance(event, Barrier) and event.stack == main and event.execution and event.trigger != "read":
            visits += 1
            if visits == nth:
                begin = event.t + event.dur
                rest.resume(begin)
    return rest, begin or 0
