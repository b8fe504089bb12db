"""The causes of each new graph of a barrier, weighed against all graphs that the barrier had before.

A graph is a set of *values*: with the penalty term or without, of 37 rows or of 12. A value that no graph of the
barrier had is the cause of a new one. Where each value was there before, the graph is a new *combination* of them: the
causes are all things in which it differs from the graphs nearest to it, for without any of them it would be one of
those.
"""

from __future__ import annotations

from collections.abc import Sequence

from xlaprof.analysis.diagnosis import Part
from xlaprof.events import Change

_Key = tuple[str, int, str]

_GRAPHS = 256  # remembered of one barrier


class Variants:
    """The graphs of one barrier, each by what differs in it from the first."""

    def __init__(self) -> None:
        self._first: dict[_Key, str] = {}  # values in the first graph
        self._graphs: dict[int, dict[_Key, str]] = {}  # program -> values
        self._changes: dict[tuple[_Key, str], Change] = {}  # how a value came
        self._named: set[_Key] = set()  # things that were a cause by themselves

    def causes(self, program: int, parts: Sequence[Part]) -> tuple[Change, ...]:
        """Why ``program`` had to be compiled, which differs in ``parts``: one change, or those that it combines."""
        if not parts:
            self._add(program, {})
            return ()
        values = dict(self._graphs.get(parts[0].change.against, {}))
        novel = None
        for part in parts:
            known = self._first.setdefault(part.key, part.old)
            is_new = part.new != known and (part.key, part.new) not in self._changes
            novel = part if novel is None and is_new else novel
            if is_new:
                self._changes[part.key, part.new] = part.change
            values[part.key] = part.new
        combined = () if novel is not None else self._combined(values)
        self._add(program, values)
        if len(combined) > 1:
            return combined
        named = novel or parts[0]
        self._named.add(named.key)
        return (named.change,)

    def _combined(self, values: dict[_Key, str]) -> tuple[Change, ...]:
        """A change for each thing in which a graph with these values differs from the nearest ones."""
        differing = [self._differing(values, known) for known in self._graphs.values()]
        least = min(map(len, differing), default=0)
        keys = dict.fromkeys(key for one in differing if len(one) == least for key in one if key in self._named)
        return tuple(change for key in keys if (change := self._change(key)) is not None)

    def _differing(self, values: dict[_Key, str], known: dict[_Key, str]) -> list[_Key]:
        keys = dict.fromkeys((*values, *known))
        return [key for key in keys if values.get(key, self._first[key]) != known.get(key, self._first[key])]

    def _change(self, key: _Key) -> Change | None:
        """How the thing changed when it was a cause first."""
        return next((change for (one, _), change in self._changes.items() if one == key), None)

    def _add(self, program: int, values: dict[_Key, str]) -> None:
        if len(self._graphs) < _GRAPHS:
            self._graphs[program] = values
