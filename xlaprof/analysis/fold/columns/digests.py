"""Step digests counted a batch at a time: nearly all events of a recording of hours are digests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xlaprof.analysis.fold.reads_and_fallbacks import pair
from xlaprof.analysis.fold.totals import Totals
from xlaprof.analysis.timeline import host
from xlaprof.analysis.timeline.columns.intervals import MOST, Column, grouped, require
from xlaprof.analysis.timeline.window import CAUSES
from xlaprof.columns.kinds import Alike, Kind


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
    require(not digests.flags("with_fallbacks").any())  # their reads are counted there too
    scopes, reads = (_sums(digests.tables.get(field, ())) for field in ("scopes", "reads"))
    named = {pair(key)[0]: sums for key, sums in scopes.items()}
    placed = {pair(key): sums for key, sums in reads.items()}
    require(len(named) == len(scopes) and len(placed) == len(reads))
    return DigestSums(digests, named, placed)


def _sums(tables: Sequence[Alike]) -> dict[str, Sums]:
    """Sums by key, in the order in which the keys come first."""
    found: dict[str, list[Column]] = {}
    for some in sorted((one for one in tables if len(one.those)), key=lambda one: int(one.those[0])):
        require(bool(some.numbers.max() < MOST))
        for n, key in enumerate(some.keys):
            found.setdefault(key, []).append(np.stack((some.those, *some.numbers[:, 3 * n : 3 * n + 3].T)))
    sums = {key: parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1) for key, parts in found.items()}
    return {key: Sums(*columns[:, np.argsort(columns[0], kind="stable")]) for key, columns in sums.items()}


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
