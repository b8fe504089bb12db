"""What every page of a report says in the same words: the facts of the run, what is amiss, what a finding is worth."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from xlaprof.analysis.model import Finding, FunctionStat, Prediction, Report, RunInfo
from xlaprof.analysis.principles import NAMED
from xlaprof.text.quantities import duration, percent, plural, times
from xlaprof.text.strings import printable

#: of a finding's confidence
MEANING = {
    "high": "measured, or read from the recording",
    "medium": "the most probable of several explanations of the recording",
    "low": "a hint: the recording fits it, and would fit something else",
}


def facts(run: RunInfo) -> list[str]:
    """Device, rank, host, time and versions."""
    found = []
    if run.platform:
        many = f" x {run.device_count}" if run.device_count > 1 else ""
        kind = f" ({printable(run.device_kind)})" if run.device_kind.lower() not in ("", run.platform.lower()) else ""
        found.append(f"{printable(run.platform)}{kind}{many}")
    if run.world > 1:
        found.append(f"rank {run.rank} of {run.world}")
    if run.host:
        found.append(printable(run.host))
    if run.started_unix_s > 0:
        found.append(datetime.fromtimestamp(run.started_unix_s).strftime("%Y-%m-%d %H:%M"))
    found.append(f"{duration(run.wall_s)} recorded")
    versions = [f"{name} {printable(run.versions[name])}" for name in ("torch", "jax") if name in run.versions]
    return [*found, *versions]


def spent(function: FunctionStat) -> str:
    """Where the time of compiling it went; "" where that is not known."""
    return ", ".join(f"{printable(phase)} {duration(seconds)}" for phase, seconds in function.phases)


def autotuned(function: FunctionStat) -> Iterator[str]:
    """Which kernels and operations autotuning took longest for."""
    named = [f"{printable(kernel)} {duration(seconds)}" for kernel, seconds in function.tuned[:NAMED]]
    if named:
        yield f"autotuned: {', '.join(named)}"


def warnings(run: RunInfo) -> Iterator[str]:
    """How the program ended, if not in order, and what is missing."""
    if run.error:
        yield f"the program ended with {printable(run.error)}"
    elif not run.finished:
        yield "no end of the recording: the program still runs, or was killed"
    for why, count in run.dropped.items():
        yield f"{plural(count, 'event')} missing ({printable(why)})"
    for note in run.notes:
        yield printable(note)


def prediction(predicted: Prediction) -> str:
    """The run with all findings fixed."""
    before, after = duration(predicted.step_s), duration(predicted.fixed_step_s)
    step = f", a step {after} instead of {before}" if after != before else ""
    wall = duration(predicted.wall_s + predicted.gain_s)
    return f"With all of this fixed the run takes {duration(predicted.wall_s)} instead of {wall}{step}."


def gain(finding: Finding, stepped: bool) -> str:
    """The gain alone, or from that to the gain with all else fixed: two defects may hide each other."""
    last = finding.gain_s if finding.gain_last_s is None else finding.gain_last_s
    least, most = sorted((finding.gain_s, last))
    if most <= 0:
        return ""
    if least == most:
        return spaced(f"gain {duration(finding.gain_s)}", per_step(finding.gain_per_step_s) * stepped)
    return f"gain {duration(least)} to {duration(most)}" if least > 0 else f"gain up to {duration(most)}"


def spaced(*parts: str) -> str:
    """What there is of ``parts``, on one line."""
    return "   ".join(filter(None, parts))


def per_step(value: float) -> str:
    """Seconds in each step; "" for none."""
    return f"{duration(value)}/step" if value > 0 else ""


def many(finding: Finding) -> str:
    """How often it happened, "33 x"; or was seen, "33 looks"."""
    return plural(finding.count, finding.unit) if finding.unit else f"{finding.count:,} x"


def worth(finding: Finding, report: Report) -> Iterator[tuple[str, str]]:
    """Label and sentence of how often it happened, what it costs and gains, how sure it is and what changed."""
    rhythm = f", {finding.rhythm}" if finding.rhythm and finding.rhythm != times(finding.count) else ""
    yield "Happened: ", f"{f'seen in {many(finding)}' if finding.unit else times(finding.count)}{rhythm}."
    steps = sum(stat.count for stat in report.steps)
    if finding.cost_s > 0:
        yield "Costs: ", f"{_amount(finding.cost_s, finding.cost_per_step_s, steps)}."
    last = finding.gain_last_s
    if finding.gain_s > 0 or last:
        gained = _amount(finding.gain_s, finding.gain_per_step_s, steps)
        share = finding.gain_s / report.run.wall_s if report.run.wall_s > 0 else 0.0
        of = f", {percent(share)} of the recording" if 0.005 <= share <= 1 else ""
        yield "Gain if fixed: ", f"{gained}{of} (predicted from what host and device waited for)."
        if last is not None:
            yield "", f"With all else fixed first: {duration(last)}; findings may hide one another."
    yield "Confidence: ", f"{finding.confidence} ({MEANING.get(finding.confidence, '')})."
    if finding.change is not None:
        was, came = finding.change.old, finding.change.new
        yield "Changed: ", f"{finding.change.what}{f', from {was} to {came}' if was or came else ''}."


def _amount(total: float, per_step: float, steps: int) -> str:
    each = f", {duration(per_step)} per step" if steps > 1 and per_step > 0 else ""
    return f"{duration(total)}{each}"
