"""Steps of which a recording only tells sums, many at once: nearly all that there is in one that goes on for hours."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from xlaprof.analysis.fold.totals import Totals
from xlaprof.analysis.fold.transfers import pair
from xlaprof.analysis.timeline import host
from xlaprof.analysis.timeline.columns.intervals import Column, alike, expect

from .batch import MOST, Kind


class Sums(NamedTuple):
    """What several digests tell of one name or place: which of them do, events, their ns, the longest."""

    of: Column
    events: Column
    total: Column
    most: Column


class Told(NamedTuple):
    """What the digests of a part tell."""

    digests: Kind
    scopes: dict[int, Sums]  # by name
    reads: dict[tuple[int, int], Sums]  # by stack and operation

    def total(self, several: Sequence[Sums]) -> Column:
        """ns of each digest."""
        ns = np.zeros(len(self.digests), np.int64)
        for sums in several:
            ns[sums.of] += sums.total
        return ns


def told_by(digests: Kind) -> Told:
    """Raises :class:`~xlaprof.analysis.fold.columns.batch.Odd` where histograms are not what a recorder writes."""
    expect(not any(map(attrgetter("fallbacks"), digests.events)))  # whose reads are told twice
    scopes = _sums([event.scopes for event in digests.events])
    reads = _sums([event.reads for event in digests.events])
    named = {pair(key)[0]: sums for key, sums in scopes.items()}
    placed = {pair(key): sums for key, sums in reads.items()}
    expect(len(named) == len(scopes) and len(placed) == len(reads))
    return Told(digests, named, placed)


def _sums(histograms: Sequence[dict[str, list[int]]]) -> dict[str, Sums]:
    """By their keys, as they come first. Steps are alike: most have the same keys."""
    some = [n for n, histogram in enumerate(histograms) if histogram]
    keys_of = [tuple(histograms[n]) for n in some]
    alike: dict[tuple[str, ...], list[int]] = {}
    if some and keys_of.count(keys_of[0]) == len(some):
        alike[keys_of[0]] = some
    else:
        for keys, n in zip(keys_of, some, strict=True):
            alike.setdefault(keys, []).append(n)
    found: dict[str, list[Column]] = {}
    for keys, those in alike.items():
        triples = list(chain.from_iterable([histograms[n].values() for n in those]))
        expect(set(map(len, triples)) == {3})
        try:
            numbers = np.fromiter(chain.from_iterable(triples), np.int64, 3 * len(triples))
        except OverflowError:
            numbers = np.full(1, -1)
        expect(bool(numbers.min() >= 0 and numbers.max() < MOST))
        for key, rows in zip(keys, numbers.reshape(len(those), len(keys), 3).transpose(1, 2, 0), strict=True):
            found.setdefault(key, []).append(np.stack((np.array(those), *rows)))
    sums = {key: np.concatenate(parts, axis=1) for key, parts in found.items()}
    return {key: Sums(*columns[:, np.argsort(columns[0], kind="stable")]) for key, columns in sums.items()}


def check_told(run: Totals, told: Told) -> None:
    """Raise :class:`~xlaprof.analysis.fold.columns.batch.Odd` for what is new."""
    expect(told.scopes.keys() <= run.scopes.keys() and told.reads.keys() <= run.reads.keys())
    expect(not len(told.digests) or 0 in run.window.devices)


def add_told(run: Totals, told: Told) -> Column:
    """Count digests; returns start, end and ns of work of what each says of the device."""
    digests, window = told.digests, run.window
    start, dur, busy = digests["t"], digests["dur"], digests["busy"]
    for name, sums in told.scopes.items():
        run.scopes[name].total.add_means(sums.events, sums.total, sums.most)
        run.scopes[name].digest_ns += int(sums.total.sum())
    for key, sums in told.reads.items():
        count, total = int(sums.events.sum()), int(sums.total.sum())
        run.reads[key].add_digests(count, total, int(sums.most.max()), len(sums.of))
        run.read.add(count, total)
    run.barriers += int(digests["barriers"].sum())
    run.executed.add(int(digests["executions"].sum()), int(busy.sum()))
    window.schedule.digest_ns += int(dur.sum())
    parts = {
        host.TRANSFER: told.total(list(told.reads.values())),
        host.TRACING: digests["tracing"],
        host.SCOPE: told.total(list(told.scopes.values())),
    }
    for name, those in alike(digests["name"]):
        split = window.split(name, first=False)
        left = dur[those]
        split.steps += len(those)
        split.total += int(left.sum())
        split.busy += int(busy[those].sum())
        for cause, ns in parts.items():  # sums, so each can only have what those before it left
            taken = np.minimum(ns[those], left)
            split.parts[cause] += int(taken.sum())
            left = left - taken
        split.parts[host.OTHER] += int(left.sum())
    return np.stack((start, start + dur, busy))
