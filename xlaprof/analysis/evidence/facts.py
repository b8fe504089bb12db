"""The settled run with the numbers that every kind of finding needs; it makes the findings."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from hashlib import blake2s
from typing import Any, TypeVar

import msgspec

from xlaprof.analysis.fold.fold import Fold
from xlaprof.analysis.fold.tallies import Site
from xlaprof.analysis.model import Counted, Finding, IdleStat, Place, Prediction, StepStats
from xlaprof.analysis.principles import DEAR, FELT, LONG_S, MANY, MOST, NOTICED, SHOWN, TRIFLE, WORTH_SAYING
from xlaprof.analysis.sums import median
from xlaprof.analysis.timeline import host
from xlaprof.analysis.timeline.rhythm import Rhythm
from xlaprof.analysis.whatif.replay import NOTHING, Cut, WhatIf, together

from . import library_options

_T = TypeVar("_T")

_DRAWS = "cpu_loader.next"  # PyTorch/XLA's name for what its loaders' threads do
_NOTHING = 1e-6  # share of a cost: less is a rounding error
_PREDICTED = 100  # findings whose gain is predicted by playing the recording again; further ones gain their cost


class Facts:
    """A settled run. Lengths in seconds."""

    def __init__(self, run: Fold, steps: tuple[StepStats, ...], idle: IdleStat, what_if: WhatIf | None = None) -> None:
        self.run = run
        self.what_if = what_if or WhatIf(run)  # the run, for replay without its defects
        self.names = run.names
        self.place, self.text = run.names.place, run.names.text
        self.words = run.words  # the framework's vocabulary
        self.steps = steps
        self.idle = idle
        self.step_count = sum(stat.count for stat in steps)
        #: time in steps, without the first of each name; the whole run where there are no steps
        inside = sum(stat.split.total_s for stat in steps)
        self.total_s = inside if inside > 0 else (run.last - (run.begin or 0)) / 1e9
        #: steps were named by the program, not inferred from barriers
        self.named_steps = any(not stat.inferred for stat in steps)
        #: the same as the ordinals of steps are counted: steps within steps once
        self.outer_steps = min(run.steps_ended, self.step_count) if not run.merged_spans else self.step_count
        #: of them those in which all was recorded; 0: not known
        self.full_steps = 0 if any(part.digest_ns for part in run.window.schedule.parts()) else self.outer_steps
        self.claims: dict[str, list[Cut]] = {}  # by id of the finding; several may have one id
        self.aside: list[Finding] = []  # that the program can do nothing about, or that are not felt
        self.ended_by: dict[str, Hashable] = {}  # by id of the finding: the change that ends it, and others with it
        self._concluded: dict[Callable[[Facts], Any], Any] = {}
        self._cuts: list[Cut] = []  # of the findings that were not set aside
        self._uncut_s = 0.0  # gains of those without a cut

    @cached_property
    def ran_at(self) -> dict[int, list[int]]:
        """By stack of the barrier or read: the programs that ran there, in order."""
        return self.run.cuts.by_stack()

    @cached_property
    def read_at(self) -> list[Place]:
        """The lines that read."""
        return [self.place(stack) for stack, _ in self.run.reads]

    @cached_property
    def barriers(self) -> dict[int, Site]:
        """Where graphs end that no read ends, by stack."""
        return {stack: site for stack, site in self.run.sites.items() if site.trigger != "read"}

    @cached_property
    def ops(self) -> dict[int, int]:
        """By program: its operations."""
        return {record.program: record.ops for record in self.run.compiles}

    def once(self, conclude: Callable[[Facts], _T]) -> _T:
        """What a function concludes from the run, and several kinds of findings ask for: it is called once."""
        if conclude not in self._concluded:
            self._concluded[conclude] = conclude(self)
        found: _T = self._concluded[conclude]
        return found

    def finding(
        self,
        kind: str,
        place: Place,
        *,
        operation: str = "",
        count: int,
        counted: Counted,
        cost_s: float,
        cause: str,
        advice: str,
        discriminator: str = "",
        cut: Cut | None = None,
        gain_s: float | None = None,
        in_steps: int | None = None,
        of_the_line: bool | None = None,
        trifle: bool | None = None,
        ended_by: Hashable = None,
        also: Iterable[Place] = (),
        evidence: Iterable[str] = (),
        **details: Any,
    ) -> Finding:
        """A finding with its id and severity. ``discriminator`` separates several at one line and operation.

        ``counted``: the events that ``count`` counts.
        ``cut``: the part of the run that a fix removes (``replay``), from which the gain is predicted, ``gain_s`` at
        most; without it the gain is ``gain_s``, by default the cost. ``of_the_line``: only the line written otherwise
        helps; by default the kind decides. ``trifle``: it is not worth a look, and set aside; by default what is not
        felt beside JAX. ``ended_by``: all findings that one change ends have it; by default a library's option.
        ``in_steps``: the steps in which it comes, by default one for each of ``count``. ``also``: lines that take part;
        only others than ``place``, where they are known, are kept. ``details``: the further fields of :class:`Finding`
        that have defaults (``change``, ``confidence``, ``rhythm``, ``values``, ``remedy``, ``buckets``).
        """
        if count < 2:
            details.pop("rhythm", "")  # once is no rhythm
        id = stable_id(kind, place, operation, discriminator)
        largest = max((one.edges[-1] for one in details.get("buckets", ())), default=0)
        said = library_options.advise(
            kind,
            place,
            cause,
            advice,
            details.pop("remedy", ""),
            self.words,
            largest,
            bool(self.run.devices()),
            self.read_at if kind == "transfer" else (),
        )
        predicted = len(self._cuts) < _PREDICTED
        known = cost_s if gain_s is None else gain_s
        gain = self.what_if.gain_s(cut) if cut is not None and predicted else known
        if gain_s is not None and gain > gain_s:
            gain, predicted = gain_s, False
        each_step, once = self._each_step(count if in_steps is None else in_steps, cut or NOTHING)
        found = Finding(
            id=id,
            kind=kind,
            severity=self._severity(cost_s),
            place=place,
            operation=operation,
            count=count,
            cost_s=cost_s,
            cost_per_step_s=each_step * (cost_s - once if cost_s - once > _NOTHING * cost_s else 0.0),
            cause=said.cause,
            advice=said.advice,
            remedy=said.remedy,
            gain_s=gain,
            gain_per_step_s=each_step * max(0.0, gain - once) * (cost_s - once > _NOTHING * cost_s),
            counted=counted,
            also=_others(place, also),
            evidence=tuple(evidence),
            **details,
        )
        if cut:
            self.claims.setdefault(id, []).append(cut)
        if ended_by is not None or said.is_option:
            self.ended_by[id] = ended_by or said.advice
        of_the_line = kind in library_options.OF_THE_LINE if of_the_line is None else of_the_line
        if trifle is None:  # compiling by JAX takes seconds, beside which little counts
            trifle = bool(self.run.jit.functions) and not self._is_felt(found)
        librarys = bool(place.library) and of_the_line and not said.is_option
        told = librarys and self._compiles_long(cut or NOTHING)
        if told:
            found = msgspec.structs.replace(found, advice=f"{found.advice} {library_options.owned(place)}")
        if trifle or (librarys and not told) or (place.library and not self._is_felt(found)):
            self.aside.append(found)
        elif cut and predicted:
            self._cuts.append(cut)
        else:
            self._uncut_s += gain
        return found

    def _compiles_long(self, cut: Cut) -> bool:
        """Whether a fix spares compiling that takes a tenth of the run: it is told, whoever wrote the line."""
        return sum(ns * (1 - kept) for _, ns, kept in cut.compiles) >= max(DEAR * self.wall_s, LONG_S) * 1e9

    def joined(self, finding: Finding, parts: Sequence[Finding]) -> Finding:
        """``finding`` with ``parts`` that one fix, its own, ends together with it: with their costs, and that gain."""
        parts = [
            one
            if one.advice == finding.advice
            else msgspec.structs.replace(one, advice=finding.advice, remedy=finding.remedy)
            for one in parts
        ]
        cuts = [self._cut_of(one) for one in (finding, *parts)]
        whole = together(cuts)
        gain = sum(one.gain_s for one in (finding, *parts))
        if whole and all(any(cut is known for known in self._cuts) for cut in cuts):
            gain = self.what_if.gain_s(whole)
            self._cuts = [known for known in self._cuts if not any(cut is known for cut in cuts)] + [whole]
        for one, cut in zip((finding, *parts), cuts, strict=True):
            self.claims[one.id] = [known for known in self.claims.get(one.id, ()) if known is not cut]
        self.claims[finding.id] += [whole] * bool(whole)
        cost = sum(one.cost_s for one in (finding, *parts))
        return msgspec.structs.replace(
            finding,
            severity=self._severity(cost),
            cost_s=cost,
            cost_per_step_s=sum(one.cost_per_step_s for one in (finding, *parts)),
            gain_s=gain,
            gain_per_step_s=sum(one.gain_per_step_s for one in (finding, *parts)),
            also=_others(finding.place, (place for one in (finding, *parts) for place in one.also)),
            remedy=finding.remedy or next((one.remedy for one in parts if one.remedy), ""),
            parts=tuple(parts),
        )

    def _severity(self, cost_s: float) -> str:
        share = cost_s / self.total_s if self.total_s > 0 else 0.0
        return "high" if share >= DEAR else "medium" if share >= NOTICED else "low"

    def _is_felt(self, finding: Finding) -> bool:
        """Whether it costs enough for a change to be worth it: of the run, or of the steps, where there are many."""
        step = self.steps[0].median_s if self.step_count >= MANY else math.inf
        whole = max(finding.cost_s, finding.gain_s)
        of_a_step = whole >= TRIFLE * self.wall_s and finding.cost_per_step_s > FELT * step
        return of_a_step or whole >= WORTH_SAYING * self.wall_s

    def often(self, rhythm: Rhythm) -> str:
        """ "every step", "3 times a step"; empty where steps are not known."""
        return rhythm.text(self.outer_steps) if self.step_count else ""

    @property
    def wall_s(self) -> float:
        """Seconds from the begin of the recording to its last event."""
        return max(1, self.run.last - (self.run.begin or 0)) / 1e9

    @cached_property
    def running_s(self) -> float:
        """Seconds of the run that neither imports nor compiling by Python's compilers took."""
        imports = sum(ns for (_, state), ns in self.run.looks_before.items() if state == "import")
        compiling = sum(one.dur for one in self.run.torch_compile.functions.values())
        compiling += sum(one.dur for one in self.run.jit.functions.values())
        return max(1e-9, self.wall_s - (imports + compiling) / 1e9)

    @property
    def uncompiling_s(self) -> float:
        """Seconds of the device's window in which nothing was compiled."""
        return max(0.0, self.idle.window_s - dict(self.idle.causes).get(host.CAUSES[host.COMPILE], 0.0))

    @property
    def loading_s(self) -> float:
        """Seconds in which a loader's thread drew batches: 0 where the loader is not one of PyTorch/XLA's."""
        drawing = (one.total.total for name, one in self.run.scopes.items() if self.text(name) == _DRAWS)
        return sum(drawing) / 1e9

    def busy_s(self, programs: Collection[int]) -> float:
        """Seconds for which the device was busy with these programs: of steps summed up only the whole is recorded."""
        each = self.run.program_busy
        return self.idle.busy_s * sum(each.get(one, 0) for one in set(programs)) / max(1, sum(each.values()))

    def hidden_s(self, seconds: float, own: Collection[int] = ()) -> float:
        """The share of ``seconds`` in which the device runs other programs than ``own``: what the host does meanwhile
        costs the run nothing, and what the device is spared meanwhile is gained."""
        beside = self.idle.busy_s - self.busy_s(own)
        return min(beside, seconds, seconds * beside / self.uncompiling_s) if self.uncompiling_s else 0.0

    def won_back_s(self, busy: float) -> float:
        """What the host wins back of seconds of the device that are spared: what it waited, or what was hidden."""
        return min(busy, max(self.hidden_s(busy), sum(tally.wait for tally in self.run.reads.values()) / 1e9))

    @property
    def working_s(self) -> float:
        """The time of the steps without compiles; without steps, the device's window."""
        if not self.step_count:
            return self.uncompiling_s
        return max(0.0, self.total_s - sum(stat.split.compile_s for stat in self.steps))

    def _each_step(self, in_steps: int, cut: Cut) -> tuple[float, float]:
        """One over the number of steps, 0 for what comes in few of them; and the seconds of compiles in few of them."""
        least = MOST * self.step_count
        once = sum(ns * (1 - kept) for _, ns, kept in cut.compiles) / 1e9 if len(cut.compiles) < least else 0.0
        return (1 / max(1, self.step_count) if in_steps >= least else 0.0), once

    def gain_last_s(self, finding: Finding) -> float | None:
        """Seconds that a fix gives back after all other fixes; None: as many as alone."""
        others = [other for other in self._cuts if other is not self._cut_of(finding)]
        if not others or len(others) == len(self._cuts):
            return None
        return max(0.0, self.what_if.gain_of_all_s(self._cuts) - self.what_if.gain_of_all_s(others))

    def goes_with(self, finding: Finding, alone: bool) -> str:
        """Why a fix gives back more than the finding costs, ``alone`` or after all other fixes."""
        cut = self._cut_of(finding)
        if not alone:
            shared = any(kept for _, _, kept in cut.compiles)
            return "graphs shared with others go with the last" if shared else "after all other fixes more waits for it"
        graphs = any(moment not in cut.recorded for moment, _, _ in cut.compiles)
        return "recording these graphs goes with compiling them" if graphs else "what waits for it goes with it"

    def _cut_of(self, finding: Finding) -> Cut:
        return (self.claims.get(finding.id) or [NOTHING])[-1]

    def predicted(self) -> Prediction | None:
        """The run with all findings fixed; None: nothing would be gained."""
        gain = min(self.wall_s, self._uncut_s + (self.what_if.gain_of_all_s(self._cuts) if self._cuts else 0.0))
        if gain <= 0:
            return None
        stat = self.steps[0] if self.steps else None
        step = stat.median_s if stat is not None else 0.0
        return Prediction(gain, self.wall_s - gain, step, self._fixed_step_s(stat) if stat is not None else 0.0)

    def _fixed_step_s(self, stat: StepStats) -> float:
        names = (name for name in self.run.steps if name and self.names.text(name) == stat.name)
        steps = self.what_if.steps(together(self._cuts), 0 if stat.inferred else next(names, 0))
        before = median(step.recorded for step in steps) if steps else 0
        share = median(step.now for step in steps) / before if before else 1.0
        return stat.median_s * share  # what happens once (a compile) is in no median step


def _others(place: Place, also: Iterable[Place]) -> tuple[Place, ...]:
    lines = {place.at: place}
    for one in also:
        if one.line:
            lines.setdefault(one.at, one)
    return tuple(lines.values())[1 : SHOWN + 1]


def listed(texts: Sequence[str]) -> Iterator[str]:
    """The first of them, and how many more there are."""
    yield from texts[:SHOWN]
    if len(texts) > SHOWN:
        yield f"and {len(texts) - SHOWN} more"


def stable_id(kind: str, place: Place, operation: str, discriminator: str = "") -> str:
    """An id that a defect keeps from run to run, even below added lines: the line's code counts, not its number."""
    lines = (place, place.acting) if place.library else (place,)
    code = [
        part
        for line in lines
        for part in (line.file.replace("\\", "/").rpartition("/")[2], line.func, line.code or str(line.line))
    ]
    parts = (kind, *code, operation, discriminator)
    return blake2s("\0".join(parts).encode("utf-8", "replace"), digest_size=6).hexdigest()
