"""A report in a notebook: its findings and where the run's time went, as HTML without scripts."""

from __future__ import annotations

from collections.abc import Iterator

from xlaprof.analysis.model import Finding, Report
from xlaprof.analysis.outcome import without_findings
from xlaprof.pages.words import facts, gain, many, per_step, prediction, spaced, warnings
from xlaprof.text.quantities import duration, plural
from xlaprof.text.safe import for_html
from xlaprof.text.strings import path_line

_MOST = 20  # findings
#: notebooks have themes of their own: what is not said here is theirs
_SMALL = "font-size: 90%; opacity: 0.75"
_LEFT = "text-align: left; vertical-align: top"
_EDGE = {"high": "#b3261e", "medium": "#b07a00", "low": "#2f7f99"}


def notebook(report: Report) -> str:
    """The HTML of a cell."""
    run, stepped = report.run, bool(report.steps)
    head = " ".join(run.argv) or run.path
    lines = [f"<div><b>{for_html(head)}</b>", f'<div style="{_SMALL}">{for_html(" · ".join(facts(run)))}</div>']
    lines += [f"<div>! {for_html(text)}</div>" for text in warnings(run)]
    if report.clean:
        lines.append(f"<p>{for_html(without_findings(report))}</p>")
    else:
        found = report.findings[:_MOST]
        lines.append(f"<p><b>{plural(len(report.findings), 'finding')}</b></p>")
        lines += [_finding(number, one, stepped) for number, one in enumerate(found, 1)]
        if len(report.findings) > _MOST:
            lines.append(f"<p>and {len(report.findings) - _MOST:,} more</p>")
        if report.predicted is not None and report.predicted.gain_s > 0:
            lines.append(f"<p>{for_html(prediction(report.predicted))}</p>")
    lines += _accounts(report)
    return "".join((*lines, "</div>"))


def _finding(number: int, one: Finding, stepped: bool) -> str:
    cost = f"costs {duration(one.cost_s)}" if one.cost_s > 0 else ""
    right = spaced(many(one), cost, per_step(one.cost_per_step_s) * stepped, gain(one, stepped))
    place = path_line(one.place.file, one.place.line)
    code = f"<pre>{for_html(one.place.code)}</pre>" if one.place.code else ""
    remedy = f"<pre>{for_html(one.remedy)}</pre>" if one.remedy else ""
    return (
        f'<details style="border-left: 4px solid {_EDGE.get(one.severity, "gray")}; padding-left: 8px; margin: 4px 0">'
        f"<summary>{number} <b>{for_html(one.kind)}</b> {for_html(place)} "
        f'<span style="{_SMALL}">{for_html(right)}</span></summary>'
        f"{code}<div>{for_html(one.cause)}</div><div><b>Fix:</b> {for_html(one.advice)}</div>{remedy}</details>"
    )


def _accounts(report: Report) -> Iterator[str]:
    if report.accounts:
        yield '<table><caption style="text-align: left">Where the time went</caption>'
        for one in report.accounts:
            yield f'<tr><td style="{_LEFT}">{for_html(one.text)}</td></tr>'
        yield "</table>"
