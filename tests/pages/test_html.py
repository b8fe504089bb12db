"""The page of xlaprof report --html: what is in the file, for whom it is, and that its figures are the report's."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from analysis.compiling import Compiling
from analysis.test_kinds import PLANTED
from hostile import EVERY, beside, hostile, instead, long
from story import Story, clean, save

from xlaprof.analysis.run import KeptRun, Run
from xlaprof.analysis.timeline import kept as kept_module
from xlaprof.analysis.timeline import spans as spans_module
from xlaprof.analysis.timeline.spans import Spans
from xlaprof.cli import main
from xlaprof.events import Execute
from xlaprof.pages.html.document import BEGINS, document
from xlaprof.text.parts import PARTS
from xlaprof.text.quantities import duration, percent, plural, size_text

ROOT = Path(__file__).parents[2]
#: attributes and elements that make a browser load something
LOADS = re.compile(
    r"<(img|iframe|object|embed|link|script|video|audio|source)\b[^>]*\b(src|href|data)=(?!\"data:,\")", re.I
)


def page(log: Path, *options: str) -> str:
    """The text of the page on a log."""
    out = log.with_suffix(".html")
    assert main(["report", str(log), "--html", str(out), *options]) == 0
    return out.read_text("ascii")


def data(text: str) -> dict[str, Any]:
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    parsed: dict[str, Any] = json.loads(found)
    return parsed


def written(name: str, tmp_path: Path) -> Path:
    """A log of a planted story, with a header."""
    return save([Story().events[0], *PLANTED[name]()], tmp_path / "run.log")


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from strings(one)


def test_what_was_compiled_says_what_took_the_time(tmp_path: Path) -> None:
    compiling = Compiling()
    compiling.compile("0/0", 400, phases={"Dynamo": 40_000_000, "Inductor": 310_000_000})
    (function,) = data(page(save(compiling.story.events, tmp_path / "run.log")))["torch_compile"]["rows"]
    assert function["phases"] == "Inductor 310 ms, unaccounted 50 ms, Dynamo 40 ms"


@pytest.mark.parametrize("name", PLANTED)
def test_the_page_has_every_figure_of_the_json_report(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = written(name, tmp_path)
    shown = data(page(log))
    capsys.readouterr()
    assert main(["report", str(log), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)

    assert shown["head"]["wall"] == duration(told["run"]["wall_s"])
    assert shown["head"]["found"] == plural(len(told["findings"]), "finding")
    assert [one["text"] for one in shown["accounts"]] == [one["text"] for one in told["accounts"]]
    assert [one["total"] for one in shown["accounts"]] == [duration(one["total_s"]) for one in told["accounts"]]
    for mine, theirs in zip(shown["findings"], told["findings"], strict=True):
        same = (
            "id",
            "kind",
            "severity",
            "confidence",
            "operation",
            "cause",
            "advice",
            "rhythm",
            "file",
            "line",
            "evidence",
        )
        assert {key: mine[key] for key in same} == {key: theirs[key] for key in same}
        assert mine["count"] == f"{theirs['count']:,} x"
        assert (duration(theirs["cost_s"]) in mine["cost"]) == (theirs["cost_s"] > 0)
        assert mine["values"] == [[one["value"], one["count"]] for one in theirs["values"]]
        if theirs["change"]:
            assert (mine["change"]["old"], mine["change"]["new"]) == (theirs["change"]["from"], theirs["change"]["to"])
    for mine, theirs in zip(shown["figures"], told["steps"]["by_name"], strict=True):
        for key in ("median", "p95", "max", "first"):
            assert mine[key] == duration(theirs[f"{key}_s"])
        assert mine["count"] == f"{theirs['count']:,}"
    for mine, theirs in zip(shown["scopes"], told["scopes"], strict=True):
        assert (mine["name"], mine["total"], mine["self"]) == (
            theirs["name"], duration(theirs["total_s"]), duration(theirs["self_s"])
        )  # fmt: skip
    for mine, theirs in zip(shown["idle"]["causes"], told["idle"]["causes"], strict=True):
        assert mine[:3] == [theirs["cause"], theirs["seconds"], duration(theirs["seconds"])]
    if told["idle"]["window_s"]:
        assert shown["idle"]["note"].startswith(percent(told["idle"]["idle_ratio"]))
    for mine, theirs in zip(shown["memory"]["course"], told["memory"]["course"], strict=True):
        assert (mine["at_s"], mine["bytes"]) == (theirs["at_s"], theirs["bytes"])
        for key in ("tensors", "programs"):
            assert mine[key] == f"{theirs[key]:,}"
    needs = [one["temporary"] for function in told["jax"]["functions"] for one in function["programs"]]
    assert sorted(one["temporary"] for one in shown["memory"]["programs"]) == sorted(map(size_text, needs))
    programs = {one["program"]: one for one in told["compilation"]["programs"]}
    assert {one["program"] for one in shown["graphs"]["rows"]} == set(programs)
    for one in shown["graphs"]["rows"]:
        assert (one["ops"], one["runs"]) == (programs[one["program"]]["ops"], programs[one["program"]]["runs"])
        assert one["compile"] == duration(programs[one["program"]]["compile_s"])
    for section in ("torch_compile", "jax"):
        assert [one["name"] for one in shown[section]["rows"]] == [one["name"] for one in told[section]["functions"]]
    assert {one[0]: one[1] for one in shown["counters"]} == {
        name: f"{count:,}" for name, count in told["counters"].items() if count
    }


@pytest.mark.parametrize("name", PLANTED)
def test_the_steps_that_are_drawn_are_those_of_the_report(name: str) -> None:
    """Their parts add up to the report's, to the nanosecond; so do the gaps, cause by cause."""
    events = PLANTED[name]()
    kept, run = KeptRun().feed_all(events), Run().feed_all(events)
    report = kept.report("run.log")
    assert report == run.report("run.log")
    window = kept.history()
    named = {key: rows for key, rows in window.steps.items() if key} or window.steps
    for stat_ in report.steps:
        rows = next(rows for key, rows in named.items() if (kept.names.text(key) if key else "step") == stat_.name)
        later = list(rows) or [rows.first]
        assert sum(row.total for row in later if row) == round(stat_.split.total_s * 1e9)
        assert sum(sum(row.parts) for row in later if row) == round(stat_.split.total_s * 1e9)
    gaps = [one.detail for row in window.idle.spans.rows.values() for one in row.whole]
    assert sum(gap.dur for gap in gaps) == sum(device.idle for device in window.devices.values())
    assert all(sum(ns for _, ns in gap.parts) == gap.dur for gap in gaps)


def test_what_is_drawn_of_a_long_run_is_few_and_loses_no_time() -> None:
    spans: Spans[str, str] = Spans(2_000)
    for n in range(20_000):
        spans.add("host", 1_000 * n, 1_000 * n + (900 if n % 1_000 else 50_000), "long" if n % 1_000 == 0 else "read")
        spans.relieve()
    (row,) = spans.rows.values()
    assert row.weight <= 2_000
    assert {one.end - one.start for one in row.whole} == {50_000}, "what is long stays as it is"
    assert sum(ns for ns, _ in row.cells["read"].values()) == 19_980 * 900
    assert sum(count for _, count in row.cells["read"].values()) == 19_980


def test_what_is_read_of_a_long_run_so_far_is_drawn_no_finer_than_all_of_it_will_be() -> None:
    at_once, growing = Spans[str, str](2_000), Spans[str, str](2_000)
    for n in range(20_000):
        at_once.share = (n + 1) / 20_000
        for spans in (at_once, growing):
            spans.add("host", 1_000 * n, 1_000 * n + 900, "read")
            spans.relieve()
            assert spans.rows["host"].weight <= 2_000
        if n == 900:
            assert at_once.grain > 0 == growing.grain
            assert at_once.rows["host"].weight <= 2_000 // 10
    assert at_once.grain == growing.grain, "in the end it makes no difference"
    assert at_once.rows["host"].cells == growing.rows["host"].cells


def test_a_log_of_many_events_is_a_page_of_few_bytes(tmp_path: Path) -> None:
    log = save(clean(20_000).events, tmp_path / "run.log")
    text = page(log)
    assert len(text) < 4_000_000
    shown = data(text)
    (steps,) = shown["steps"]
    assert len(steps["rows"]) <= 4_096
    assert sum(row[3] for row in steps["rows"]) == 19_999
    assert steps["first"][3] == 1


def seconds(row: dict[str, Any], unit: int) -> float:
    """What a row of the timeline holds, stretches and sums, in units."""
    total, at, cells = sum(row["spans"][1::4]), 0, row["cells"]
    while at < len(cells):
        kinds = cells[at + 1]
        total += sum(cells[at + 3 : at + 2 + 3 * kinds : 3])
        at += 2 + 3 * kinds
    return total * unit / 1e9


def test_a_long_run_is_drawn_in_full_where_findings_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans_module, "MOST", 2_000)
    monkeypatch.setattr(kept_module, "GAPS", 500)
    story = Story()
    barrier, read = story.line(20, "xr.sync()"), story.line(21, "loss.item()")
    for step in range(2_000):
        with story.step():
            with story.scope("load"):
                story.spend(3)
            story.barrier(barrier, device=4, graph="odd" if step == 1_500 else "step")
            story.read(read)
    told = story.report()
    log = save(story.finish(), tmp_path / "run.log")
    shown = data(page(log))["timeline"]
    rows = {row["title"]: row for row in shown["rows"]}
    unit = shown["unit_ns"]
    assert sum(len(row["spans"]) // 4 for row in rows.values()) < 20_000
    assert all(row["cells"] for row in (rows["main: steps"], rows["device"], rows["device idle"]))
    assert shown["close_ups"][0][0].startswith("the beginning")
    assert any("finding 1" in why for why, _, _ in shown["close_ups"])
    # no time is lost or counted twice, and what lies in a close-up is there by itself
    assert seconds(rows["device"], unit) == pytest.approx(told.idle.busy_s, rel=1e-3)
    assert seconds(rows["device idle"], unit) == pytest.approx(told.idle.idle_s, rel=1e-3)
    for _, start, end in shown["close_ups"][:1]:
        moments = list(accumulate(rows["device"]["spans"][::4]))
        within = [event for event in story.events if type(event) is Execute and start <= event.start < end]
        assert sum(start <= moment * unit < end for moment in moments) == len(within) > 5


@pytest.mark.parametrize("change", [beside, instead, long])
def test_hostile_strings_are_data(change: Any, tmp_path: Path) -> None:
    events = PLANTED["recompile: another shape"]()
    header, *rest = [hostile(event, change) for event in [*Story().events, *events]]
    log = save([header, *rest, *([] if change is beside else EVERY)], tmp_path / "run.log")
    text = page(log)
    assert text.isascii()
    assert text.count("<script") == text.count("</script>") == 2, "no string opened or closed a script"
    assert "<" not in re.findall(r'id="data">(.*?)</script>', text, re.S)[0]
    assert not [one for one in strings(data(text)) if not all(c.isprintable() or c == "\n" for c in one)]


def test_the_page_forbids_itself_every_request(tmp_path: Path) -> None:
    text = page(save(clean().events, tmp_path / "run.log"))
    assert text.startswith(BEGINS)
    assert "default-src 'none'" in text
    assert LOADS.findall(text) == []
    script = text[text.rindex("<script>") :]
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch(", "XMLHttpRequest"):
        assert word not in script


def test_the_file_is_its_owners(tmp_path: Path) -> None:
    log = save(clean().events, tmp_path / "run.log")
    out = tmp_path / "run.html"
    out.write_text(f"{BEGINS}0.0 -->")
    out.chmod(0o644)
    page(log)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert sorted(one.name for one in tmp_path.iterdir()) == ["run.html", "run.log"]


def test_nothing_but_a_page_of_ours_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = save(clean().events, tmp_path / "run.log")
    thesis = tmp_path / "thesis.html"
    thesis.write_text("<!doctype html><p>years of work")
    assert main(["report", str(log), "--html", str(thesis)]) == 2
    assert "is no report of xlaprof, will not overwrite without --force" in capsys.readouterr().err
    assert thesis.read_text().endswith("work")
    assert main(["report", str(log), "--html", str(thesis), "--force"]) == 0
    assert main(["report", str(log), "--html", str(thesis)]) == 0, "a page of ours is replaced"
    for wrong, why in ((tmp_path, "is a folder"), (tmp_path / "no" / "x.html", "there is no folder")):
        assert main(["report", str(log), "--html", str(wrong)]) == 2
        assert why in capsys.readouterr().err
    assert main(["report", str(tmp_path / "none.log"), "--html", str(tmp_path / "x.html")]) == 2
    assert not (tmp_path / "x.html").exists()


def test_export_writes_the_same_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = written("recompile: another shape", tmp_path)
    text = page(log)
    out = tmp_path / "exported.html"
    capsys.readouterr()
    assert main(["export", str(log), "--to", "html", "-o", str(out)]) == 0
    assert str(out) in capsys.readouterr().out
    assert out.read_text("ascii") == text
    assert main(["export", str(log), "--to", "html", "-o", str(log)]) == 2


def test_since_step_and_fail_on_hold_for_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = written("recompile: another shape", tmp_path)
    assert main(["report", str(log), "--html", str(tmp_path / "a.html"), "--fail-on", "low"]) == 1
    shown = data(page(log, "--since-step", "2"))
    assert shown["steps"][0]["first"][1] >= 2
    assert "step 2" in shown["head"]["since"]
    assert main(["report", str(log), "--html", str(tmp_path / "a.html"), "--since-step", "100000"]) == 2
    assert main(["report", str(log), "--html", str(tmp_path / "a.html"), "--top", "1"]) == 2
    assert "--top" in capsys.readouterr().err


def test_a_program_of_which_nothing_was_seen_says_what_was_looked_for(tmp_path: Path) -> None:
    story = Story()
    story.spend(5)
    shown = data(page(save(story.finish(), tmp_path / "run.log")))
    assert shown["head"]["verdict"].startswith("Nothing was observed")
    crashed = Story()
    crashed.spend(5)
    shown = data(page(save(crashed.finish("RuntimeError"), tmp_path / "run.log")))
    assert shown["head"]["amiss"] == ["the program ended with RuntimeError"]
    assert shown["head"]["ended"] == ""


def test_parts_have_one_order() -> None:
    from xlaprof.pages.html import drawn

    assert set(dict(PARTS)) <= set(drawn._CAUSE)


@pytest.mark.skipif(find_spec("hatchling") is None, reason="NO HATCHLING: the wheel's content was not looked at")
def test_template_style_and_script_are_in_what_is_installed(tmp_path: Path) -> None:
    """In the wheel, and in the sources it is built from."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)], cwd=ROOT, check=True, capture_output=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as installed:
        inside = {name.removeprefix("xlaprof/") for name in installed.namelist()}
    (sources,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sources) as packed:
        from_sources = {name.partition("/xlaprof/")[2] for name in packed.getnames()}
    here = ROOT / "xlaprof" / "pages" / "html" / "page"
    wanted = {str(file.relative_to(ROOT / "xlaprof")) for file in here.rglob("*") if file.is_file()}
    assert wanted <= inside
    assert wanted <= from_sources


def test_every_style_and_script_is_used() -> None:
    from xlaprof.pages.html import document as module

    here = ROOT / "xlaprof" / "pages" / "html" / "page"
    assert {file.stem for file in (here / "js").iterdir()} == set(module._SCRIPTS)
    assert {file.stem for file in (here / "css").iterdir()} == set(module._STYLES)
    for file in (here / "js").iterdir():
        assert file.read_text().startswith("// "), f"{file.name} does not say what it is for"
        assert file.read_text().count("\n") < 500
    assert document  # the door


def test_a_step_without_length_has_no_parts(tmp_path: Path) -> None:
    """Two barriers that end at once: what lay between them is more than the steps' sum, which is nothing."""
    log, page = tmp_path / "run.log", tmp_path / "run.html"
    barriers = (
        f'{{"k":"barrier","t":2,"dur":{dur},"stack":1,"ops":50,"tracing":300000,"execution":{number}}}\n'
        for number, dur in enumerate((50_200_000, 200_000, 50_200_000), start=1)
    )
    log.write_text(
        '{"k":"header","schema":1,"pid":100,"mono_ns":0,"unix_ns":1700000000000000000,"host":"box"}\n'
        + "".join(barriers)
    )
    assert main(["report", str(log), "--html", str(page)]) in (0, 1)
    assert page.exists()
