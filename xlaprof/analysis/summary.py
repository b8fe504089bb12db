"""From the totals of a settled run to its :class:`~xlaprof.analysis.model.Report`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from xlaprof.analysis.accounts import accounts
from xlaprof.analysis.findings import find
from xlaprof.analysis.model import Activity, Gap, IdleStat, Report, RunInfo, ScopeStat, StepStats, TimeSplit
from xlaprof.analysis.places import short

from .compiled import conversions, generated, ran
from .evidence.compilation import compilation
from .evidence.compiled_functions import compiled_functions
from .evidence.facts import Facts
from .evidence.idle_time import by_cause, label, place_of
from .fold import xla_metrics
from .fold.fold import Fold
from .fold.tallies import StepTally
from .memory import memory
from .recompiles import cuda_graphs
from .recompiles.jit_section import jitted_functions
from .timeline import host
from .timeline.idle import Cause, LongGap
from .timeline.window import Split
from .torch_tpu import section
from .whatif.replay import WhatIf

INFERRED_NAME = "step"


def summarize(run: Fold, path: str, notes: tuple[str, ...], top: int | None, what_if: WhatIf | None = None) -> Report:
    """The report of a settled run. ``what_if``: its predictions, where they are made from an earlier sample of it."""
    steps = _steps(run)
    idle = _idle(run)
    facts = Facts(run, steps, idle, what_if)
    findings = find(facts)
    functions = compiled_functions(
        facts,
        findings,
        generated.stats(facts),
        conversions.stats(facts),
        (ran.said(facts), generated.said(facts), conversions.said(facts)),
        cuda_graphs.said(facts),
        cuda_graphs.stat(facts),
        ran.functions(facts),
        ran.stat(facts),
    )
    jitted = jitted_functions(facts, findings)
    return Report(
        run=_info(run, path, notes),
        steps=steps,
        counters=xla_metrics.counts(run),
        seconds=xla_metrics.seconds(run),
        scopes=_scopes(run),
        idle=idle,
        findings=findings if top is None else findings[:top],
        activity=activity(run),
        predicted=facts.predicted(),
        compilation=compilation(run),
        torch_compile=functions,
        jax=jitted,
        torch_tpu=section.stat(facts),
        accounts=accounts(facts, findings, functions, jitted),
        memory=memory(run),
    )


def _info(run: Fold, path: str, notes: tuple[str, ...]) -> RunInfo:
    header, device, end = run.header, run.device, run.end
    described = header.device if header else {}
    begin = run.begin or 0
    count = described.get("count", "1")
    return RunInfo(
        path=path,
        host=header.host if header else "",
        pid=header.pid if header else 0,
        rank=header.rank if header else 0,
        world=header.world if header else 1,
        argv=tuple(header.argv) if header else (),
        started_unix_s=(header.unix_ns + begin - header.mono_ns) / 1e9 if header else 0.0,
        wall_s=(run.last - begin) / 1e9,
        versions=dict(header.versions) if header else {},
        platform=device.platform if device else described.get("platform", ""),
        device_kind=device.kind if device else described.get("kind", ""),
        device_count=device.count if device else int(count) if count.isdecimal() else 1,
        finished=end is not None,
        error=end.error if end else "",
        events=run.events,
        dropped=dict(run.dropped),
        notes=notes,
    )


def _steps(run: Fold) -> tuple[StepStats, ...]:
    named = {name: tally for name, tally in run.steps.items() if name}
    chosen = named or run.steps
    stats = [_step_stats(run, name, tally) for name, tally in chosen.items() if tally.count]
    return tuple(sorted(stats, key=lambda stat: -stat.split.total_s))


def _step_stats(run: Fold, name: int, tally: StepTally) -> StepStats:
    first, rest = tally.first, tally.rest
    if rest.count:
        split = run.window.splits.get(name)
        median, p95, least, most = rest.percentile(0.5), rest.percentile(0.95), rest.least, rest.most
    else:
        split = run.window.first.get(name)
        median = p95 = least = most = first
    return StepStats(
        name=run.names.text(name) if name else INFERRED_NAME,
        count=tally.count,
        first_s=first / 1e9,
        median_s=median / 1e9,
        p95_s=p95 / 1e9,
        min_s=least / 1e9,
        max_s=most / 1e9,
        last_num=tally.last_num,
        recent_s=tuple(dur / 1e9 for dur in tally.recent),
        split=_time_split(split or Split(), max(1, len(run.devices()))),
        inferred=not name,
        total=tally.total,
    )


#: the causes of host time that the parts of a step are
_PARTS = {
    "compile_s": host.COMPILE, "tracing_s": host.TRACING, "transfer_wait_s": host.TRANSFER, "fallback_s": host.FALLBACK,
    "execute_s": host.DISPATCH, "data_wait_s": host.DATA, "gc_s": host.GC, "scopes_s": host.SCOPE,
    "other_s": host.OTHER, "upload_s": host.UPLOAD,
}  # fmt: skip


def _time_split(split: Split, devices: int) -> TimeSplit:
    parts = {name: split.parts[cause] / 1e9 for name, cause in _PARTS.items()}
    return TimeSplit(total_s=split.total / 1e9, device_busy_s=split.busy / devices / 1e9, **parts)


def _scopes(run: Fold) -> tuple[ScopeStat, ...]:
    stats = []
    for name, tally in run.scopes.items():
        total, blamed = tally.total, run.window.idle.causes.get(host.SCOPE + name)
        stats.append(
            ScopeStat(
                name=run.names.text(name),
                count=total.count,
                total_s=total.total / 1e9,
                self_s=tally.self_ns() / 1e9,
                median_s=total.percentile(0.5) / 1e9,
                max_s=total.most / 1e9,
                errors=tally.errors,
                device_idle_s=blamed.total / 1e9 if blamed else 0.0,
                steps=tally.steps if run.steps_ended else 0,
            )
        )
    return tuple(sorted(stats, key=lambda stat: -stat.total_s))


def _idle(run: Fold) -> IdleStat:
    devices = run.devices()
    busy = sum(device.busy for device in devices)
    idle = sum(device.idle + device.digest_idle for device in devices)
    seen_in: dict[Cause, Cause] = dict(run.window.idle.seen_in())
    longest = sorted((gap for _, _, gap in run.window.idle.longest), key=lambda gap: -gap.dur)
    return IdleStat(
        window_s=(busy + idle) / 1e9,
        busy_s=busy / 1e9,
        idle_s=idle / 1e9,
        idle_ratio=idle / (busy + idle) if busy + idle else 0.0,
        causes=_named(run, ((seen_in.get(cause, cause), ns) for cause, ns in by_cause(run).items())),
        gaps=tuple(_gap(run, gap) for gap in longest),
    )


def _gap(run: Fold, gap: LongGap) -> Gap:
    return Gap(
        start_s=(gap.start - (run.begin or 0)) / 1e9,
        dur_s=gap.dur / 1e9,
        step=gap.step,
        blame=_named(run, gap.parts),
        place=place_of(gap, run),
    )


def _named(run: Fold, causes: Iterable[tuple[Cause, int]]) -> tuple[tuple[str, float], ...]:
    """The seconds of each cause by its name, the largest first."""
    named: Counter[str] = Counter()
    for cause, ns in causes:
        named[label(cause, run.names)] += ns
    return tuple((name, ns / 1e9) for name, ns in named.most_common())


def activity(run: Fold) -> Activity:
    """What the program does at the moment of the last event. ``run`` need not be settled."""
    state, since = run.now
    detail = f"{run.end.error} ended the program" if run.end is not None and run.end.error else ""
    if (begun := run.lasting) is not None:
        place = begun.place
        state, since = "compiling", begun.t
        told = [f"{short(place)}  {place.code}".rstrip()] * bool(place.line)
        what = run.names.text(begun.func) if begun.func else f"graph {begun.graph}" if begun.graph else ""
        phase = f"({begun.phase})" if begun.phase else ""
        told += [f"{what} {phase}".strip()] * bool(what or phase)
        if begun.first is not None and (begun.first.old or begun.first.new):
            told.append(f"{begun.first.subject}: {begun.first.old} → {begun.first.new}")
        detail = " · ".join(told)
    return Activity(state=state, step=run.step_num, since_s=max(0, run.last - since) / 1e9, detail=detail)
