"""Report, JSON and terminal UI write the same duration, size, share and part of a step in the same way."""

from __future__ import annotations

import io
import json
from functools import partial

import pytest
from analysis.test_budget import used
from analysis.test_findings import ragged
from analysis.test_growth import trained
from msgspec.structs import replace
from rich.console import Console
from tui.sample import report

from xlaprof.analysis.model import IdleStat, Report, TimeSplit
from xlaprof.analysis.timeline.host import CAUSES
from xlaprof.pages.json import text, to_json
from xlaprof.pages.page import show_page
from xlaprof.pages.terminal import render
from xlaprof.text.parts import PARTS
from xlaprof.tui.panels.findings import FindingDetail
from xlaprof.tui.panels.idle import IdlePanel
from xlaprof.tui.panels.idle import Shown as IdleShown
from xlaprof.tui.panels.time import TimePanel
from xlaprof.tui.snapshot import Snapshot, status


def page(shown: Report) -> str:
    file = io.StringIO()
    show_page(partial(render, shown), Console(file=file, width=100, highlight=False))
    return file.getvalue()


def words(text: str) -> str:
    return " ".join(text.split())


def split_of(seconds: float) -> TimeSplit:
    """Every part takes ``seconds``."""
    fields = {field: seconds for _, field in PARTS}
    return TimeSplit(total_s=10 * seconds, device_busy_s=seconds, **fields)


@pytest.mark.parametrize("seconds", [3.3e-7, 0.000788, 0.0123, 1.824, 125.0, 3725.0])
def test_a_part_of_a_step_has_one_name_and_one_duration(seconds: float) -> None:
    split = split_of(seconds)
    one = report()
    one = replace(one, steps=(replace(one.steps[0], count=2, split=split),))
    printed, on_screen = words(page(one)), [words(str(row)) for row in TimePanel(id="time").lines(one.steps[0], 80)]
    in_json = {part["part"]: part["seconds"] for part in json.loads(text(to_json(one)))["steps"]["parts"]}
    for (name, _), row in zip(PARTS, on_screen, strict=False):
        assert row.startswith(name)
        written = row.removeprefix(name).strip(" █▏▎▍▌▋▊▉").rstrip("%0123456789").strip()
        assert f"{written} 10%" in printed[printed.index(name) :]
        assert in_json[name] == seconds


def test_the_parts_of_a_step_are_called_as_the_causes_of_idle_time() -> None:
    assert {name for name, _ in PARTS} - {"named scopes"} <= set(CAUSES.values())


def test_a_share_of_idle_time_reads_the_same() -> None:
    idle = IdleStat(125.0, 84.0, 41.0, 0.328, (("tracing", 40.9), ("fallback", 0.1)), ())
    printed = words(page(replace(report(), idle=idle)))
    note = IdlePanel(id="idle").note(IdleShown(idle))
    assert note == "33% of 2m 05s"
    assert note in printed
    assert words(str(IdlePanel(id="idle").lines(IdleShown(idle), 80)[1])).endswith("100 ms <1%")
    assert "100 ms <1%" in printed


def test_a_finding_costs_the_same_everywhere() -> None:
    run = ragged().report()
    (finding,) = run.findings
    assert "costs 500 ms" in page(run)
    assert "500 ms in all" in str(FindingDetail(id="detail").lines(finding, 80))
    assert "500 ms" in json.loads(text(to_json(run)))["findings"][0]["cause"]


def test_a_size_reads_the_same_in_a_finding_a_budget_and_the_state_line() -> None:
    (finding,) = trained(200, tensors=6, size=40_000).findings()
    assert "(8 MiB)" in finding.cause
    assert "8 MiB allowed" in used(trained(200), max_memory="8MiB").text
    reading = Snapshot("run.log", "catching up", 0.0, read=2 << 20, total=8 << 20)
    assert status(reading).detail == "25% of 8 MiB"
