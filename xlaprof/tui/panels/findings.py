"""Findings: the ranked list, and the details of the selected one."""

from __future__ import annotations

import textwrap
from collections import Counter

import msgspec
from rich.cells import cell_len
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.highlight import highlight
from textual.message import Message
from textual.widget import Widget
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from xlaprof.analysis.model import Finding, Place, Report
from xlaprof.analysis.places import called
from xlaprof.text.cells import fit, shorten, shorten_place
from xlaprof.text.quantities import duration
from xlaprof.text.strings import printable
from xlaprof.tui.widgets.panel import Line, Panel, Region, heading, line, quiet

COLOURS = {"high": "$text-error", "medium": "$text-warning", "low": "$text-muted"}


def label(kind: str) -> str:
    """A kind of finding in words: "missing barrier"."""
    return kind.replace("_", " ")


def where(place: Place, width: int = 1000) -> str:
    """A line of code, short: "decoder.py:88"; "" where it is not known."""
    return shorten_place(place.file, place.line, width)


def row(finding: Finding, width: int, kind_width: int, place_width: int) -> Line:
    """One finding on one line: kind, line, code, times, cost, gain. What does not fit goes, the gain last."""
    gain = fit(duration(finding.gain_s) if finding.gain_s > 0 else "-", 9, right=True)
    cost = fit(duration(finding.cost_s), 9, right=True)
    times = fit(f"×{finding.count:,}", 7, right=True)
    if width - 2 - kind_width - len(gain) - len(cost) < place_width + 1:
        cost = ""
    rest = width - 2 - kind_width - len(gain) - len(cost)
    if rest < place_width + 1:
        place_width = max(0, rest - 1)
    place = f" {fit(where(finding.place, place_width), place_width)}" if place_width else ""
    rest -= len(place)
    if rest < len(times):
        times = ""
    rest -= len(times)
    code = fit(f"  {finding.place.code or finding.operation}", rest)
    return line(
        ("● ", COLOURS.get(finding.severity, "")),
        fit(label(finding.kind), kind_width),
        place,
        (code, "$text-muted"),
        times,
        (cost, "$text-muted"),
        gain,
    )


def keys(findings: tuple[Finding, ...]) -> list[str]:
    """A key for each finding: its id, and a number, since the same code on two lines has one id."""
    seen: Counter[str] = Counter()
    out = []
    for finding in findings:
        out.append(f"{finding.id}-{seen[finding.id]}")
        seen[finding.id] += 1
    return out


class FindingsList(OptionList):
    """The findings, the one whose fix gives back most first. The selection stays on its finding when ranks change."""

    class Selected(Message):
        """``finding`` is the one to explain."""

        def __init__(self, finding: Finding) -> None:
            super().__init__()
            self.finding = finding

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, markup=False)
        self.border_title = heading("Findings")
        self._findings: tuple[Finding, ...] = ()
        self._chosen = ""  # key of the finding the user moved to; "" follows the most expensive

    def show(self, findings: tuple[Finding, ...]) -> None:
        """List ``findings``, keeping the user's selection if it is still among them."""
        if findings != self._findings:
            self._findings = findings
            self.border_title = heading("Findings", f"{len(findings):,}, the largest gain first: count, cost, gain")
            self._fill()

    def on_resize(self) -> None:
        self._fill()

    def _fill(self) -> None:
        width = self.scrollable_content_region.width
        kinds = max((len(label(f.kind)) for f in self._findings), default=0)
        places = min(max((cell_len(where(f.place)) for f in self._findings), default=0), max(14, width // 4))
        ids = keys(self._findings)
        rows = [row(f, width, kinds, places) for f in self._findings]
        with self.prevent(OptionList.OptionHighlighted):
            if ids == [option.id for option in self.options]:
                for index, prompt in enumerate(rows):  # in place, so that nothing scrolls
                    self.replace_option_prompt_at_index(index, prompt)
            else:
                self.clear_options()
                self.add_options([Option(prompt, id=id) for prompt, id in zip(rows, ids, strict=True)])
            if self._chosen not in ids:
                self._chosen = ""
            self.highlighted = (ids.index(self._chosen) if self._chosen else 0) if ids else None
        if self.highlighted is not None:
            self.post_message(self.Selected(self._findings[self.highlighted]))

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        self._chosen = event.option_id or ""
        self.post_message(self.Selected(self._findings[event.option_index]))


class Nothing(msgspec.Struct, frozen=True):
    """There is no finding; ``final``: and the run has ended. ``costly``: what took long all the same."""

    final: bool
    costly: tuple[str, ...] = ()


class FindingDetail(Panel[Finding | Nothing]):
    """Cause, advice, cost and evidence of one finding, under its line of code."""

    def lines(self, data: Finding | Nothing, width: int) -> list[Line]:
        if isinstance(data, Nothing):
            first = line(("Clean: nothing to report.", "$text-success")) if data.final else quiet("Nothing so far.")
            return [
                first,
                *(quiet(part) for text in data.costly for part in ("", *textwrap.wrap(printable(text), max(8, width)))),
            ]
        place = data.place
        inside = "".join(f"  {printable(part)}" for part in (place.func, place.module) if part)
        path = f"{place.file}:{place.line}" if place.file else "(line unknown)"
        path = shorten(path, max(width - len(inside), width // 2), keep_end=True)
        out = [line((shorten(path + inside, width), "$text-muted"))]
        if place.code:
            code = highlight(printable(place.code), language="python").wrap(max(8, width - 4))
            out += [line("    " if i else "  ", part) for i, part in enumerate(code)]
            if place.library:
                out.append(line((shorten(f"  in {called(place.acting)}", width), "$text-muted")))
            out.append(line(""))
        out += self._labelled("cause", data.cause, width)
        for part in data.parts:
            out += self._labelled(f"with a {part.kind}", f"{duration(part.cost_s)} of the cost: {part.cause}", width)
        out += self._labelled("advice", data.advice, width, "$text-success")
        if data.change is not None:
            out += self._labelled("change", f"{data.change.what}: {data.change.old} → {data.change.new}", width)
        if data.operation:
            out += self._labelled("operation", data.operation, width)
        cost = f"{duration(data.cost_s)} in all"
        if 0 < data.cost_per_step_s < data.cost_s:  # equal where there are no steps
            cost += f", {duration(data.cost_per_step_s)} per step"
        out += self._labelled("cost", f"{cost}, ×{data.count:,}", width)
        if data.gain_s > 0:
            out += self._labelled("gain", f"{duration(data.gain_s)} if it is fixed, predicted", width)
        for number, fact in enumerate(data.evidence):
            out += self._labelled("" if number else "evidence", fact, width, "$text-muted")
        return out

    def title(self, data: Finding | Nothing) -> str:
        return label(data.kind).capitalize() if isinstance(data, Finding) else "Findings"

    def note(self, data: Finding | Nothing) -> str:
        return data.severity if isinstance(data, Finding) else ""

    @staticmethod
    def _labelled(name: str, value: str, width: int, style: str = "") -> list[Line]:
        """``name`` in a column of its own, ``value`` wrapped beside it."""
        column = 11 if width >= 50 else 0
        if not column:
            value = f"{name}: {value}" if name else value
        wrapped = textwrap.wrap(printable(value), max(8, width - column)) or [""]
        return [
            line((fit(name if i == 0 else "", column), "$text-muted"), (part, style)) for i, part in enumerate(wrapped)
        ]


class FindingsPanel(Vertical, Region):
    """The list above, the selected finding below."""

    TITLE = "Findings"
    HELP = "ranked by the time a fix would give back"
    ORDER = 1
    PLACE = "left"

    _listed = True  # the list was on the screen
    _explained = ""  # id of the finding whose detail is on the screen

    def compose(self) -> ComposeResult:
        yield FindingsList(id="list")
        yield FindingDetail(id="detail")

    def show(self, report: Report) -> None:
        """Take the findings of ``report``."""
        findings, detail = self.query_one(FindingsList), self.query_one(FindingDetail)
        focused = findings.has_focus or detail.has_focus
        findings.display = not report.clean
        findings.show(report.findings)
        if report.clean:
            costly = tuple(one.text for one in report.accounts if one.costly and report.run.finished)
            detail.draw(Nothing(final=report.run.finished, costly=costly))
        if focused and findings.display != self._listed:
            (detail if report.clean else findings).focus()
        self._listed = findings.display

    def stops(self) -> list[Widget]:
        """The list, unless it is empty and so hidden; the finding below."""
        return [widget for widget in (self.query_one(FindingsList), self.query_one(FindingDetail)) if widget.display]

    def on_findings_list_selected(self, event: FindingsList.Selected) -> None:
        event.stop()
        detail = self.query_one(FindingDetail)
        detail.draw(event.finding)
        if event.finding.id != self._explained:
            self._explained = event.finding.id
            detail.scroll_home(animate=False)


PANEL = FindingsPanel
