"""All that the page shows, as one object: the figures of the report, written out, and the numbers of its drawings."""

from __future__ import annotations

import os
from itertools import chain
from typing import Any

from xlaprof.analysis.model import Account, IdleStat, Report, RunInfo, StepStats
from xlaprof.analysis.outcome import without_findings
from xlaprof.analysis.views.details import details
from xlaprof.pages.words import facts, prediction, warnings
from xlaprof.text.parts import PARTS, parts
from xlaprof.text.quantities import duration, percent, plural
from xlaprof.text.safe import for_screen
from xlaprof.version import __version__

from . import compiled, drawn, findings, lines
from .gather import Gathered
from .index import Index
from .memory import memory

_SCOPES = 500
_COUNTERS = 500
_CAUSES = 40  # of idle time


def views(of: Gathered) -> dict[str, Any]:
    """The page's data. Every string in it is made safe to be shown as text."""
    report, names, index = of.report, of.run.names, Index()
    detailed = details(of.run, of.lanes.uploads)
    begin = of.run.begin or 0
    shown: dict[str, Any] = {
        "version": __version__,
        "head": _head(of),
        "accounts": [_account(account, report) for account in report.accounts],
        "parts": [name for name, _ in PARTS],
        "figures": [_steps(stat) for stat in report.steps],
        "steps": drawn.steps(of.window, names, len(of.window.devices), begin),
        "idle": _idle(report.idle),
        "timeline": drawn.timeline(of, index),
        "findings": findings.findings(of),
        "graphs": compiled.graphs(detailed, report, index),
        "torch_compile": compiled.functions(report.torch_compile, "graph", report, index),
        "jax": compiled.functions(report.jax, "program", report, index),
        "torch_tpu": compiled.torch_tpu(report.torch_tpu, index),
        "again": {
            "torch": compiled.again(tuple(chain.from_iterable(one.again for one in detailed.functions)), report, index),
            "jax": compiled.again(detailed.jax, report, index),
        },
        "breaks": compiled.breaks(detailed.functions, index),
        "memory": memory(report, index),
        "scopes": _scopes(report),
        "transfers": lines.transfers(detailed, index),
        "files": lines.files(of, detailed),
        "counters": _counters(report),
    }
    shown["labels"], shown["places"] = index.labels, index.places
    safe: dict[str, Any] = _safe(shown)
    return safe


def _safe(value: Any) -> Any:
    """``value`` with every string safe to be shown: no control characters, no marks that turn the writing."""
    if isinstance(value, str):
        return value if value.isprintable() else for_screen(value)
    if isinstance(value, dict):
        return {key: _safe(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return value if all(type(one) is int for one in value) else [_safe(one) for one in value]
    return value


def _head(of: Gathered) -> dict[str, Any]:
    report = of.report
    run = report.run
    amiss = list(warnings(run))
    if of.others:
        amiss.append("the log holds further recordings: the figures are of all, timeline and steps of the first alone")
    verdict = ""
    if report.clean:
        verdict = without_findings(report)
    gained = report.predicted is not None and report.predicted.gain_s > 0
    return {
        "program": _program(run),
        "argv": " ".join(run.argv),
        "path": run.path,
        "facts": facts(run),
        "ended": "" if amiss and not run.finished else "ended in order" if not run.error else "",
        "amiss": amiss,
        "verdict": verdict,
        "clean": report.clean,
        "observed": report.observed,
        "found": plural(len(report.findings), "finding"),
        "wall": duration(run.wall_s),
        "wall_s": run.wall_s,
        "prediction": prediction(report.predicted) if report.predicted is not None and gained else "",
        "since": f"everything before step {of.since_step} is left out" if of.since_step is not None else "",
        "versions": [f"{name} {version}" for name, version in run.versions.items() if name != "xlaprof"],
        "events": plural(run.events, "event"),
    }


def _program(run: RunInfo) -> str:
    """The script that ran, without its folder."""
    return os.path.basename(run.argv[0].replace(chr(92), "/")) if run.argv and run.argv[0] else run.path


def _account(account: Account, report: Report) -> dict[str, Any]:
    number = {finding.id: n for n, finding in enumerate(report.findings, 1)}
    return {
        "what": account.what,
        "text": account.text,
        "share": account.share,
        "percent": percent(account.share),
        "total": duration(account.total_s),
        "total_s": account.total_s,
        "explained_s": account.explained_s,
        "normal_s": account.normal_s,
        "unexplained_s": account.unexplained_s,
        "split": [
            [name, value, duration(value)]
            for name, value in (
                ("explained by findings", account.explained_s),
                ("normal", account.normal_s),
                ("unexplained", account.unexplained_s),
            )
            if value > 0
        ],
        "findings": [number[id] for id in account.findings if id in number],
        "costly": account.costly,
    }


def _steps(stat: StepStats) -> dict[str, Any]:
    split = stat.split
    count = max(1, stat.count - 1)
    mean = split.total_s / count
    rows = sorted((row for row in parts(split) if row[1] > 0.0005 * split.total_s > 0), key=lambda row: -row[1])
    without = ", without the first" if stat.count > 1 else ""
    busy = split.device_busy_s
    return {
        "name": stat.name + (" (between barriers)" if stat.inferred else ""),
        "count": f"{stat.count:,}",
        "median": duration(stat.median_s),
        "p95": duration(stat.p95_s),
        "min": duration(stat.min_s),
        "max": duration(stat.max_s),
        "first": duration(stat.first_s),
        "note": f"mean of {count:,}{without}: {duration(mean)}" if split.total_s > 0 else "",
        "split": [[name, value, duration(value / count), percent(value / split.total_s)] for name, value in rows],
        "busy": [busy, duration(busy / count), percent(busy / split.total_s)] if busy > 0 < split.total_s else None,
    }


def _idle(idle: IdleStat) -> dict[str, Any]:
    whole = idle.idle_s
    causes = [
        [cause, value, duration(value), percent(value / whole) if whole > 0 else "", drawn.named_part(cause)]
        for cause, value in idle.causes[:_CAUSES]
    ]
    note = f"{percent(idle.idle_ratio)} of {duration(idle.window_s)}, from the first execution to the last"
    rest = sum(value for _, value in idle.causes[_CAUSES:])
    return {"note": note if idle.window_s > 0 else "", "causes": causes, "rest": duration(rest) if rest else ""}


def _scopes(report: Report) -> list[dict[str, Any]]:
    return [
        {
            "name": scope.name,
            "errors": f"{scope.errors:,} raised" if scope.errors else "",
            "count": f"{scope.count:,}",
            "total": duration(scope.total_s),
            "total_s": scope.total_s,
            "self": duration(scope.self_s),
            "median": duration(scope.median_s),
            "max": duration(scope.max_s),
            "idle": duration(scope.device_idle_s) if scope.device_idle_s > 0 else "-",
        }
        for scope in report.scopes[:_SCOPES]
    ]


def _counters(report: Report) -> list[list[str]]:
    return [
        [name, f"{count:,}", duration(report.seconds[name]) if report.seconds.get(name) else ""]
        for name, count in list(report.counters.items())[:_COUNTERS]
        if count
    ]
