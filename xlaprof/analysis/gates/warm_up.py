"""The part of a recording after a step, which ``--after-step`` counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from xlaprof.analysis.fold.fold import TIMELESS
from xlaprof.analysis.run import Run
from xlaprof.events import AnyEvent, Barrier, Header

from .limits import BudgetError

#: Gives the events of a recording from its beginning, each time it is called.
Read = Callable[[], Iterable[AnyEvent]]


def after_step(read: Read, run: Run, step: int, path: str) -> tuple[Run, int]:
    """The recording after the end of step ``step``, and that moment. Raises :class:`BudgetError` if nothing follows.

    ``run``: the whole recording, settled. Where steps have no names, step n ends at visit n + 1 of the main barrier.
    """
    if any(run.steps):
        rest = Run(since_step=step + 1).feed_all(read())
        if rest.waiting or not any(tally.count for tally in rest.steps.values()):
            raise BudgetError(f"{path} has no step after {step} (the last one is {run.step_num}): nothing to check")
        return rest.settled(), rest.begun
    visits = {stack: site.executed for stack, site in run.sites.items() if site.trigger != "read" and site.executed}
    if not visits:
        raise BudgetError(
            f"{path} has neither named steps nor barriers, so there is nothing after step {step} to check"
        )
    main = run.main_stack if run.main_stack in visits else max(visits, key=visits.__getitem__)
    rest = _after_visit(read(), main, step + 1, run.trains)
    if not any(tally.count for tally in rest.steps.values()):
        raise BudgetError(
            f"{path} has no step after {step} (no named ones, and {visits[main]} up to a barrier): nothing to check"
        )
    return rest.settled(), rest.begun


def _after_visit(events: Iterable[AnyEvent], main: int, nth: int, trains: bool) -> Run:
    """The recording after the ``nth`` visit of the barrier ``main``; ``trains``: of those whose graph trains."""
    rest = Run()
    visits = 0
    for event in events:
        if type(event) in TIMELESS or isinstance(event, Header):
            rest.feed(event)
        elif visits == nth:
            if getattr(event, "t", rest.begun) >= rest.begun:  # executions are recorded late
                rest.feed(event)
        elif isinstance(event, Barrier) and event.stack == main and event.execution and event.trigger != "read":
            visits += event.trains or not trains
            if visits == nth:
                rest.resume(event.t + event.dur)
    return rest
