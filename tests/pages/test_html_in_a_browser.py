"""The page of xlaprof report --html in a browser (chromium, without a screen): what a user does with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from analysis.test_kinds import PLANTED
from chromium import CHROMIUM
from hostile import EVERY, hostile, long
from story import Story, save

from xlaprof.analysis.findings import names
from xlaprof.cli import main
from xlaprof.text.quantities import duration, percent

pytestmark = [
    pytest.mark.skipif(
        CHROMIUM is None, reason="NO CHROMIUM: the report's page was not tried in a browser (install chromium)"
    ),
    pytest.mark.skipif(
        find_spec("playwright") is None, reason="NO PLAYWRIGHT: the report's page was not tried in a browser"
    ),
]


def story() -> Story:
    """A training whose last batch is smaller, which reads its loss in every step, and tokenizes between steps."""
    told = Story(argv=["train.py", "--fast"])
    told.line(11, "for batch in loader:")
    barrier, read, load = (
        told.line(20, "xr.sync()"),
        told.line(21, "losses.append(loss.item())"),
        told.line(12, "tok(x)"),
    )
    from xlaprof.events import Change

    for number in range(30):
        with told.step():
            with told.scope("tokenize", load):
                told.spend(30)
            told.trace(3)
            small = number == 20
            change = Change("shape", "f32[8,4]", "f32[5,4]", "input of aten::mm", load) if small else None
            told.barrier(barrier, device=12, graph="small" if small else "step", change=change)
            told.read(read)
    told.finish()
    return told


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page on that training."""
    return written(story().events, tmp_path_factory.mktemp("page"))


def written(events: list[Any], folder: Path) -> Path:
    log = save(events, folder / "run.log")
    assert main(["report", str(log), "--html", str(folder / "run.html")]) == 0
    return folder / "run.html"


@contextmanager
def opened(browser: Any, file: Path, width: int = 1280, **options: Any) -> Iterator[Any]:
    """The page in a tab. At its end the console must be empty, and nothing but the file may have been asked for."""
    context = browser.new_context(viewport={"width": width, "height": 800}, **options)
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    until(page, "document.documentElement.dataset.ready && window.xlaprof")
    yield page
    assert said == []
    assert set(asked) == {file.as_uri()}
    context.close()


def until(page: Any, holds: str) -> None:
    """Wait frame by frame. (Playwright's own waiting evaluates strings in the page, which the page forbids.)"""
    for _ in range(600):
        if page.evaluate(holds):
            return
        page.evaluate("new Promise(requestAnimationFrame)")
    pytest.fail(f"never: {holds}")


def shown(page: Any) -> list[float]:
    """The range that the timeline shows."""
    found: list[float] = page.evaluate("xlaprof.timePlot.range")
    return found


def test_findings_lead_to_the_timeline_and_back(browser: Any, file: Path) -> None:
    with opened(browser, file) as page:
        assert page.title().startswith("train.py: ")
        numbers = {one["kind"]: one["number"] for one in page.evaluate("xlaprof.data.findings")}
        finding = page.locator(f"#finding-{numbers['recompile']}")
        finding.locator("details").first.evaluate("one => { one.open = true; }")
        assert "f32[5,4]" in finding.inner_text()
        finding.get_by_role("button", name="on the timeline").first.click()
        start, end = shown(page)
        assert 0.5e9 < end - start < page.evaluate("xlaprof.data.timeline.wall") / 2
        picked = page.locator("#picked")
        assert "compile" in picked.inner_text()
        picked.get_by_role("button", name="recompile").click()
        assert page.evaluate("document.activeElement.id") == f"finding-{numbers['recompile']}"


def test_a_gap_that_is_clicked_says_its_blame_and_line(browser: Any, file: Path) -> None:
    with opened(browser, file) as page:
        canvas = page.locator("#timeline canvas")
        canvas.scroll_into_view_if_needed()
        row = page.evaluate("xlaprof.timeline.rows.findIndex((row) => row.of === 'gap')")
        at = page.evaluate(
            "(n) => { const row = xlaprof.timeline.rows[n]; const gap = 4; xlaprof.timePlot.show(row.start[gap] - 5e7,"
            " row.start[gap] + row.length[gap] + 5e7); xlaprof.timePlot.paint();"
            " return [xlaprof.timePlot.x(row.start[gap] + row.length[gap] / 2), xlaprof.timeline.tops[n].top + 8,"
            " row.length[gap] * xlaprof.data.timeline.unit_ns / 1e9]; }",
            row,
        )
        canvas.hover(position={"x": at[0], "y": at[1]})
        assert "idle: scope tokenize" in page.locator("#timeline .tip").inner_text()
        canvas.click(position={"x": at[0], "y": at[1]})
        told = page.locator("#picked").inner_text()
        assert f"Device idle: {duration(at[2])}" in told
        assert "scope tokenize" in told
        assert "train.py:12" in told
        assert "tok(x)" in told


def test_the_timeline_is_zoomed_and_moved(browser: Any, file: Path) -> None:
    with opened(browser, file) as page:
        canvas = page.locator("#timeline canvas")
        whole = shown(page)
        canvas.click(position={"x": 300, "y": 150})
        page.mouse.wheel(0, -480)
        until(page, f"xlaprof.timePlot.range[1] - xlaprof.timePlot.range[0] < {whole[1]} / 2")
        near = shown(page)
        box = canvas.bounding_box()
        page.mouse.move(box["x"] + 300, box["y"] + 150)
        page.mouse.down()
        page.mouse.move(box["x"] + 100, box["y"] + 150)
        page.mouse.up()
        moved = shown(page)
        assert moved[0] > near[0]
        assert moved[1] - moved[0] == pytest.approx(near[1] - near[0])
        page.locator("#timeline").get_by_role("button", name="Show all").click()
        assert shown(page) == whole


def test_keys_reach_everything(browser: Any, file: Path) -> None:
    with opened(browser, file) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the findings"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "findings"
        reached = set()
        for _ in range(120):
            page.keyboard.press("Tab")
            reached.add(
                page.evaluate(
                    "document.activeElement.tagName + ' ' + (document.activeElement.closest('section') || {id: ''}).id"
                )
            )
            if "CANVAS timeline" in reached:
                break
        assert {"SUMMARY findings", "CANVAS steps", "CANVAS timeline"} <= reached
        whole = shown(page)
        for key in ("ArrowDown", "ArrowDown", "ArrowRight", "+", "+"):
            page.keyboard.press(key)
        assert shown(page) != whole
        picked = page.locator("#picked")
        assert picked.get_attribute("aria-live") == "polite"
        before = picked.inner_text()
        page.keyboard.press("ArrowRight")
        assert picked.inner_text() != before
        page.keyboard.press("Home")
        assert shown(page) == whole


def test_search_finds_lines_and_findings(browser: Any, file: Path) -> None:
    with opened(browser, file) as page:
        page.keyboard.press("/")
        page.keyboard.type("f32[5,4]")
        results = page.get_by_role("option")
        results.first.wait_for()
        assert "recompile" in results.first.inner_text()
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id").startswith("finding-")
        page.keyboard.press("/")
        page.keyboard.type("there is no such thing")
        assert "Nothing found" in page.locator("#results").inner_text()


def test_dark_follows_the_system_and_the_switch(browser: Any, file: Path) -> None:
    back = "getComputedStyle(document.body).backgroundColor"
    with opened(browser, file, color_scheme="dark") as page:
        dark = page.evaluate(back)
        page.get_by_role("button", name="Switch to the light theme").click()
        light = page.evaluate(back)
        assert light != dark
        page.reload()
        until(page, "document.documentElement.dataset.ready")
        assert page.evaluate(back) == light, "it is remembered"
    with opened(browser, file, color_scheme="light") as page:
        assert page.evaluate(back) == light


def test_it_prints(browser: Any, file: Path) -> None:
    with opened(browser, file, color_scheme="dark") as page:
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print")
        assert page.evaluate("[...document.querySelectorAll('.finding details')].every((one) => one.open)")
        assert not page.get_by_role("navigation").is_visible()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.pdf(format="A4").startswith(b"%PDF-")


def test_a_phone_needs_no_scrolling_sideways(browser: Any, file: Path) -> None:
    with opened(browser, file, width=375, has_touch=True, is_mobile=True) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == 375
        canvas = page.locator("#timeline canvas")
        canvas.scroll_into_view_if_needed()
        canvas.tap(position={"x": 180, "y": page.evaluate("xlaprof.timeline.tops[0].top") + 8})
        until(page, "document.getElementById('picked').textContent.includes('train')")


def test_every_chart_has_its_figures_as_a_table(browser: Any, file: Path) -> None:
    with opened(browser, file) as page:
        page.get_by_text("The figures of this chart as a table").click()
        until(page, "document.querySelector('#steps details[open] table')")
        rows = page.get_by_role("table", name="Time of steps by cause").get_by_role("row")
        assert rows.count() == 31, "a heading and 30 steps"
        page.get_by_text("What is in view, as a table").click()
        until(page, "document.querySelector('#timeline details[open] table')")
        assert page.locator("#timeline table").get_by_role("row").count() > 20
        unnamed = page.evaluate(
            "[...document.querySelectorAll('button, a, input, select, canvas')].filter((one) =>"
            " !(one.textContent.trim() || one.getAttribute('aria-label'))).map((one) => one.outerHTML)"
        )
        assert unnamed == []
        levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map((one) => Number(one.tagName[1]))")
        assert levels[0] == 1
        assert levels.count(1) == 1


def test_durations_read_as_in_the_report(browser: Any, file: Path) -> None:
    values = [0.0, 1e-9, 2.5e-6, 999.5e-9, 0.00995, 0.125, 0.9995, 2.675, 9.995, 12.25, 99.95, 125.5, 3599.5, 360000.0]
    values += [1.37**n * 1e-9 for n in range(150)]
    with opened(browser, file) as page:
        assert page.evaluate("(all) => all.map(xlaprof.duration)", values) == [duration(one) for one in values]
        shares = [0.0, 0.004, 0.005, 0.125, 0.285, 0.5, 0.995, 1.0]
        assert page.evaluate("(all) => all.map(xlaprof.percent)", shares) == [percent(one) for one in shares]


def test_hostile_strings_are_shown_and_do_nothing(browser: Any, tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)></script><script>window.harmed = 1</script>"
    events = [hostile(event, lambda text: f"{text}{evil}") for event in PLANTED["recompile: another shape"]()]
    header = hostile(Story().events[0], lambda text: f"{text}{evil}")
    with opened(browser, written([header, *events], tmp_path)) as page:
        assert page.evaluate("window.harmed") is None
        assert page.locator("img").count() == 0
        assert "<img src=x onerror=alert(1)>" in page.locator("#findings").inner_text()
    events = [hostile(event, long) for event in [*Story().events, *PLANTED["recompile: another shape"]()]]
    with opened(browser, written([*events, *EVERY], tmp_path), width=375) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == 375


def test_every_kind_of_finding_is_drawn(browser: Any, tmp_path: Path) -> None:
    kinds = set()
    page = browser.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    for planted in PLANTED.values():
        page.goto(written([Story().events[0], *planted()], tmp_path).as_uri())
        until(page, "window.xlaprof")
        found = page.evaluate("xlaprof.data.findings.map((one) => one.kind)")
        assert page.locator("article.finding").count() == min(len(found), 20)
        kinds |= set(found)
    page.close()
    assert said == []
    assert kinds == set(names())


def test_a_run_of_nothing_is_a_page(browser: Any, tmp_path: Path) -> None:
    empty = Story()
    empty.finish()
    with opened(browser, written(empty.events, tmp_path)) as page:
        assert "Nothing was observed" in page.locator("#findings").inner_text()
