"""TensorBoard on loopback shows an exported run: over HTTP, and in a browser without a network."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from chromium import CHROMIUM

from xlaprof.analysis.model import Report
from xlaprof.log import read as read_log

from .ask import export, profile, report
from .served import Board, served

SAMPLE = Path(__file__).parents[2] / "sample_traces" / "decoder.log"
RUN = "run-2026-11-22_19-17-26"

pytestmark = pytest.mark.skipif(
    find_spec("xprof") is None, reason="xprof is not installed: NOTHING here was checked against TensorBoard"
)
in_a_browser = pytest.mark.skipif(
    CHROMIUM is None or find_spec("playwright") is None,
    reason="NO CHROMIUM or NO PLAYWRIGHT: TensorBoard was not tried in a browser",
)


class Shown(NamedTuple):
    board: Board
    said: Report
    host: str
    tools: dict[str, Any]  # what XProf's converter makes of the same export


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    logdir = tmp_path_factory.mktemp("logdir")
    events = list(read_log(SAMPLE))
    written = export(events, logdir)
    tools = profile(export(events, tmp_path_factory.mktemp("another")))
    made = {tool: tools.ask(tool) for tool in ("overview_page", "input_pipeline_analyzer", "framework_op_stats")}
    with served(logdir) as board:
        yield Shown(board, report(events), Path(written.files[0]).name.removesuffix(".xplane.pb"), made)


@pytest.fixture
def tab(browser: Any, shown: Shown) -> Iterator[Any]:
    """A page that reaches nothing but this machine."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(60_000)
    page.route("**/*", lambda route: route.continue_() if "//127.0.0.1:" in route.request.url else route.abort())
    yield page
    page.close()


def test_the_profile_tab_lists_the_run_and_its_tools(shown: Shown) -> None:
    listing = shown.board.get("data/plugins_listing")
    assert all(listing[tab]["enabled"] for tab in ("profile", "text", "timeseries"))
    assert shown.board.get("data/plugin/profile/runs") == [RUN]
    tools = shown.board.get("data/plugin/profile/run_tools", run=RUN)
    assert {"overview_page", "input_pipeline_analyzer", "trace_viewer@", "framework_op_stats"} <= set(tools)


@pytest.mark.parametrize("tool", ["overview_page", "input_pipeline_analyzer", "framework_op_stats"])
def test_the_plugin_answers_what_its_converter_makes(tool: str, shown: Shown) -> None:
    answer = shown.board.get("data/plugin/profile/data", run=RUN, tag=tool, host=shown.host)
    assert _sorted(answer) == _sorted(shown.tools[tool])


def _sorted(tables: list[Any]) -> list[Any]:
    """Tables without the order of their rows: that of the warnings is chance."""
    return [{**table, "rows": sorted(map(str, table.get("rows", ())))} for table in tables]


def test_the_text_tab_has_the_findings_in_the_order_of_the_report(shown: Shown) -> None:
    tags = shown.board.get("data/plugin/text/tags")[RUN]
    wanted = [f"findings/{number} {finding.kind}" for number, finding in enumerate(shown.said.findings, 1)]
    assert sorted(tags) == ["findings/1 idle_gap", *wanted[1:], "report"]
    for tag, finding in zip(wanted, shown.said.findings, strict=True):
        (page,) = shown.board.get("data/plugin/text/text", run=RUN, tag=tag)
        assert f"<strong>{finding.kind}</strong>" in page["text"]
        assert "<strong>Fix:</strong>" in page["text"]


def test_the_curves_are_those_of_the_steps(shown: Shown) -> None:
    curves = shown.board.get("data/plugin/scalars/tags")[RUN]
    assert {"train/step_time_s", "train/idle_waiting_for_input_s", "train/compile_s"} <= set(curves)
    points = shown.board.get("data/plugin/scalars/scalars", run=RUN, tag="train/step_time_s")
    assert [step for _, step, _ in points] == list(range(60))
    assert max(seconds for _, _, seconds in points[1:]) == pytest.approx(shown.said.steps[0].max_s, rel=1e-5)


@in_a_browser
def test_the_overview_in_a_browser(shown: Shown, tab: Any) -> None:
    tab.goto(shown.board.page(RUN, "overview_page", shown.host))
    frame = tab.frame_locator("iframe")
    frame.get_by_text("Average Step Time").wait_for()
    frame.get_by_text("167.42 ms").wait_for()
    text = frame.locator("body").inner_text()
    assert RUN in text
    assert "idle_gap at" in text
    assert f"Fix: {shown.said.findings[0].advice}" in text
    assert "The device was idle 79% of 10.2 s: compile 3.48 s (43%), scope tokenize 2.27 s (28%)" in text
    assert "cpu (shown as a GPU is)" in text
    assert "Is training job: true" in text
    assert "Duty Cycle" not in text


@in_a_browser
def test_the_input_analysis_in_a_browser(shown: Shown, tab: Any) -> None:
    tab.goto(shown.board.page(RUN, "input_pipeline_analyzer", shown.host))
    frame = tab.frame_locator("iframe")
    frame.get_by_text("Your program is HIGHLY input-bound because 23.9% of the total step time").wait_for()
    frame.get_by_text("Average: 167.42 ms").wait_for()


@in_a_browser
def test_the_trace_viewer_in_a_browser(shown: Shown, tab: Any) -> None:
    tab.goto(shown.board.page(RUN, "trace_viewer@", shown.host))
    viewer = tab.frame_locator("iframe").frame_locator("iframe")
    for lane in ("XLA Modules", "MainThread", "input: what the idle device waited for"):
        viewer.get_by_text(lane, exact=True).first.wait_for()
    viewer.get_by_text("/device:CUSTOM:idle gaps of device 0").locator("visible=true").first.wait_for()
    find = viewer.get_by_placeholder("Find Events...")
    find.click()
    tab.keyboard.type("idle: compile")
    tab.keyboard.press("Enter")
    viewer.get_by_text(" of 3").wait_for()
    viewer.get_by_text("→", exact=True).first.click()  # selects the first one, and shows its stats
    viewer.get_by_text("ms of scope tokenize").locator("visible=true").first.wait_for()


@in_a_browser
def test_the_text_tab_in_a_browser(shown: Shown, tab: Any) -> None:
    tab.goto(f"{shown.board.address}#text")
    tab.get_by_text("Do what 'tokenize' does before the loop").first.wait_for()
    assert tab.get_by_text("tokens = torch.tensor([tokenizer.encode(passage)").first.is_visible()
