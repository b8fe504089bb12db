"""One line for whoever waits at the terminal, as soon as a run is seen to cost a lot; the report says it in full.

A warning is given once for each cause: a graph that has grown three times in a row, the tenth graph compiled for one
cause, a function of which torch.compile compiles no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from xlaprof.analysis.diagnosis import cause
from xlaprof.analysis.fold.tallies import Site
from xlaprof.analysis.names import Names
from xlaprof.analysis.places import short
from xlaprof.analysis.principles import HABIT, MANY
from xlaprof.events import Compile, DynamoLimit, Event, JitCompile, Recompile, Stack, Text
from xlaprof.text.quantities import duration


class EarlyWarnings:
    """Fed with the events of a recording as they are written."""

    def __init__(self) -> None:
        self._names = Names()
        self._sites: dict[int, Site] = {}  # by Stack id of a barrier
        self._again: Counter[tuple[object, ...]] = Counter()
        self._spent: Counter[tuple[object, ...]] = Counter()  # ns
        self._warned: set[tuple[object, ...]] = set()
        self._handlers: dict[type[Event], Callable[[Any], str | None]] = {
            Text: self._names.on_text,
            Stack: self._names.on_stack,
            Compile: self._on_compile,
            Recompile: self._on_recompile,
            JitCompile: self._on_jit,
            DynamoLimit: self._on_limit,
        }

    def feed(self, event: Event) -> str:
        """The warning that is due after ``event``, without a line's end; mostly ``""``."""
        handler = self._handlers.get(type(event))
        return handler(event) or "" if handler is not None else ""

    def _on_compile(self, event: Compile) -> str:
        change = cause(event)
        site = self._sites.setdefault(event.stack, Site())
        site.grow(event.ops)
        if site.grew >= HABIT and (change is None or change.what == "operation"):
            return self._once(
                ("grows", event.stack),
                f"the graph that ends at {self._at(event.stack)} has grown {site.grew} times in a row, to "
                f"{event.ops:,} operations, and is compiled anew each time: end every step with a barrier, and detach "
                "what is carried to the next",
            )
        if change is None or event.trigger == "dynamo":
            return ""
        stack = change.made or change.condition or change.stack or event.stack
        key = (change.what, change.role, stack, change.name)
        self._again[key] += 1
        self._spent[key] += event.dur
        spent = f"{self._again[key]} times, {duration(self._spent[key] / 1e9)} so far"
        what = f"{change.name or change.what} went from {change.old} to {change.new}"
        return self._often(key, f"compiled again {spent}, for one cause at {self._at(stack)}: last, {what}")

    def _on_recompile(self, event: Recompile) -> str:
        if not event.guards:
            return ""
        guard = event.guards[0]
        went = f"{guard.subject} went from {guard.old} to {guard.new}"
        return self._called_again("torch.compile", event, (guard.subject,), went)

    def _on_jit(self, event: JitCompile) -> str:
        if not event.changes or not event.code:
            return ""
        change = event.changes[0]
        went = f"{change.name} went from {change.old} to {change.new}" if change.name else f"another {change.kind}"
        went = f"{change.name} is another object each time" if change.kind == "anew" else went
        return self._called_again("JAX", event, (change.kind, change.name), went)

    def _called_again(self, who: str, event: Recompile | JitCompile, what: tuple[str, ...], went: str) -> str:
        key = (who, event.func, event.code, *what)
        self._again[key] += 1
        name, at = self._names.text(event.func), self._at(event.stack)
        return self._often(key, f"{who} compiled {name} again {self._again[key]} times (called at {at}): last, {went}")

    def _on_limit(self, event: DynamoLimit) -> str:
        return self._once(
            ("limit", event.func, event.code),
            f"torch.compile compiles no more versions of {self._names.text(event.func)} (called at "
            f"{self._at(event.stack)}): {event.limit} is {event.value}, and what fits no version runs eagerly",
        )

    def _often(self, key: tuple[object, ...], text: str) -> str:
        return self._once(key, text) if self._again[key] >= MANY else ""

    def _once(self, key: tuple[object, ...], text: str) -> str:
        if key in self._warned:
            return ""
        self._warned.add(key)
        return text

    def _at(self, stack: int) -> str:
        place = self._names.place(stack)
        return short(place) if place.line else "an unknown line"
