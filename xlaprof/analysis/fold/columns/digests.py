"""Step digests counted a batch at a time: nearly all events of a recording of hours are digests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from xlaprof.analysis.fold.reads_and_fallbacks import pair
from xlaprof.analysis.fold.totals import Totals
from xlaprof.analysis.timeline import host
from xlaprof.analysis.timeline.columns.intervals import MOST, Column, grouped, require
from xlaprof.analysis.timeline.window import CAUSES

from .batch import Kind


class Sums(NamedTuple):
    """The sums of one name or place in several digests."""

    of: Column  # numbers of the digests
    events: Column
    total: Column  # ns
    most: Column  # ns


class DigestSums(NamedTuple):
    """The digests of a part, and their sums."""

    digests: Kind
    scopes: dict[int, Sums]  # by name
    reads: dict[tuple[int, int], Sums]  # by stack and operation

    def total(self, several: Sequence[Sums]) -> Column:
        """ns of each digest."""
        ns = np.zeros(len(self.digests), np.int64)
        for sums in several:
            ns[sums.of] += sums.total
        return ns


def digest_sums(digests: Kind) -> DigestSums:
    """The sums of digests. Raises :class:`NotVectorizable` where histograms are not as a recorder writes them."""
    require(not any(map(attrgetter("fallbacks"), digests.events)))  # their reads are counted there too
    scopes = _sums([event.scopes for event in digests.events])
    reads = _sums([event.reads for event in digests.events])
    named = {pair(key)[0]: sums for key, sums in scopes.items()}
    placed = {pair(key): sums for key, sums in reads.items()}
    require(len(named) == len(scopes) and len(placed) == len(reads))
    return DigestSums(digests, named, placed)


def _sums(histograms: Sequence[dict[str, list[int]]]) -> dict[str, Sums]:
    """Sums by key, in the order in which the keys come first."""
    found: dict[str, list[Column]] = {}
    for keys, those in _alike(histograms):
        some = histograms if len(those) == len(histograms) else [histograms[n] for n in those.tolist()]
        triples = chain.from_iterable(map(dict.values, some))
        numbers = np.fromiter(chain.from_iterable(triples), np.int64, 3 * len(keys) * len(those))
        require(bool(numbers.max() < MOST))
        for key, rows in zip(keys, numbers.reshape(len(those), len(keys), 3).transpose(1, 2, 0), strict=True):
            found.setdefault(key, []).append(np.stack((those, *rows)))
    sums = {key: np.concatenate(parts, axis=1) for key, parts in found.items()}
    return {key: Sums(*columns[:, np.argsort(columns[0], kind="stable")]) for key, columns in sums.items()}


def _alike(histograms: Sequence[dict[str, list[int]]]) -> Iterator[tuple[tuple[str, ...], Column]]:
    """The numbers of histograms with the same keys, and these. Most steps of a loop have the same."""
    keys = list(map(tuple, histograms))
    if keys and keys.count(keys[0]) == len(keys):
        if keys[0]:
            yield keys[0], np.arange(len(keys))
        return
    by_keys: dict[tuple[str, ...], list[int]] = {}
    for n, some in enumerate(keys):
        if some:
            by_keys.setdefault(some, []).append(n)
    for some, those in by_keys.items():
        yield some, np.array(those)


def check_digests(run: Totals, sums: DigestSums) -> None:
    """Raise :class:`NotVectorizable` for new names and places."""
    require(sums.scopes.keys() <= run.scopes.keys() and sums.reads.keys() <= run.reads.keys())
    require(not len(sums.digests) or 0 in run.window.devices)


def add_digests(run: Totals, found: DigestSums, ends: Kind) -> Column:
    """Count digests; returns the device time of each: start, end, ns of work. ``ends``: of all steps of their part."""
    digests, window = found.digests, run.window
    start, dur, busy = digests["t"], digests["dur"], digests["busy"]
    for name, sums in found.scopes.items():
        run.scopes[name].total.add_means(sums.events, sums.total, sums.most)
        run.scopes[name].digest_ns += int(sums.total.sum())
    for key, sums in found.reads.items():
        count, total = int(sums.events.sum()), int(sums.total.sum())
        run.reads[key].add_digests(count, total, int(sums.most.max()), len(sums.of))
        run.read.add(count, total)
    run.barriers += int(digests["barriers"].sum())
    run.executed.add(int(digests["executions"].sum()), int(busy.sum()))
    window.schedule.digest_ns += int(dur.sum())
    of_cause = {
        host.TRANSFER: found.total(list(found.reads.values())),
        host.TRACING: digests["tracing"],
        host.SCOPE: found.total(list(found.scopes.values())),
    }
    parts, left = np.zeros((CAUSES, len(dur)), np.int64), dur.copy()
    for cause, ns in of_cause.items():  # sums that may overlap: each gets at most the time still left
        parts[cause] = np.minimum(ns, left)
        left -= parts[cause]
    parts[host.OTHER] = left
    for name, those in grouped(digests["name"]):
        ns = parts[:, those].sum(axis=1).tolist()
        window.split(name, first=False).add(len(those), int(dur[those].sum()), int(busy[those].sum()), ns)
    ordinals = window.next_ordinal + np.searchsorted(ends.at, digests.at)
    window.passed_at_once(np.stack((start, start + dur, digests["num"], ordinals, digests["name"])), busy, parts.T)
    return np.stack((start, start + dur, busy))
