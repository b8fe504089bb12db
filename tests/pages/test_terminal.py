"""The page for people: what it says, that it fits, and that nothing in a log can disturb it."""

import io
import re
from functools import partial

import msgspec
import pytest
from analysis.test_compiled import Compiling
from analysis.test_findings import ragged, reading
from analysis.test_run import training
from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console
from story import Story, clean

from pages.test_json import wild
from xlaprof.analysis.model import Place, Report
from xlaprof.pages.json import to_json
from xlaprof.pages.page import show_page
from xlaprof.pages.terminal import render
from xlaprof.text.quantities import duration


def page(report: Report, width: int = 80, hidden: int = 0, colour: bool = False) -> str:
    file = io.StringIO()
    console = Console(
        file=file, width=width, force_terminal=colour, color_system="truecolor" if colour else None, highlight=False
    )
    show_page(partial(render, report, hidden=hidden), console)
    return file.getvalue()


def test_the_page_names_the_mistake_its_line_its_cost_and_what_to_do() -> None:
    text = page(ragged().report())
    assert "recompile  high" in text
    assert "train.py:34 in train" in text
    assert "| x = x.to(device)" in text
    assert "costs 500 ms" in text
    assert "from i64[32,16] to i64[8,16]" in " ".join(text.split())
    assert "Fix: Pad the last batch to 32 or leave it out." in text


def test_what_costs_too_little_to_be_measured_takes_a_line() -> None:
    """Of the time of the steps, and of a step: one that each step pays is told in full, however much was compiled."""
    report = ragged().report()
    (large,) = report.findings
    low = replace(large, id="0" * 12, severity="low", cost_per_step_s=0.0)
    text = page(replace(report, findings=(large, low)))
    assert text.count("Fix:") == 1
    told = text[text.index("Small, each less than 2% of the time of the steps:") :]
    assert re.search(r"^ 2 recompile  train.py:34 \| x = x.to\(device\) +1 x   500 ms$", told, re.MULTILINE)
    assert re.search(r"More: xlaprof explain \S* ?2$", told, re.MULTILINE)
    felt = replace(low, cost_per_step_s=report.steps[0].median_s)
    assert page(replace(report, findings=(large, felt))).count("Fix:") == 2


def test_a_clean_run_says_so_and_nothing_else() -> None:
    text = page(clean().report())
    assert text.rstrip().endswith("No findings: 1 graph, 20 steps.")
    assert "Fix:" not in text


def test_what_a_cache_of_programs_spared_and_will_not_spare_is_told() -> None:
    report = clean().report()
    stat = msgspec.structs.replace(report.compilation, cached=3, loaded_s=7.0, unkept=(("it checks values", 2),))
    text = page(msgspec.structs.replace(report, compilation=stat))
    assert "3 of them came from the cache of programs, which spared 7.00 s." in text
    assert "2 will be compiled in the next run too: it checks values." in text


def test_what_took_long_has_a_name_below_the_findings_or_above_the_verdict() -> None:
    heading = "What took more than a tenth of the run"
    text = " ".join(page(clean().report()).split())
    named = "500 ms (71%) compiling, normal: 1 graph first compiled at train.py:20."
    assert text.index(heading) < text.index(named) < text.index("No findings: 1 graph")
    assert "(28%) device busy, normal: the program's own work, run at train.py:20. No findings" in text
    text = " ".join(page(ragged().report()).split())
    assert text.index("1 recompile") < text.index(heading)
    assert "normal: 1 graph first compiled at train.py:39." in text[text.index(heading) :]
    assert text.endswith("device busy, normal: the program's own work, run at train.py:39.")


def test_a_program_of_which_nothing_was_seen_is_not_called_clean() -> None:
    looked_for = "no graph of torch.compile, no program of JAX or on an xla device."
    story = Story()
    assert " ".join(page(story.report()).split()).endswith(f"Nothing was observed: {looked_for}")
    with story.step(), story.scope("forward"):
        story.gc(3)
    story.finish(error="exit code 3")
    text = " ".join(page(story.report()).split())
    assert text.endswith(f"Nothing was observed but 1 step and 1 scope: {looked_for}")
    assert "! the program ended with exit code 3" in text
    assert not to_json(story.report())["observed"]
    assert to_json(clean().report())["observed"]


def test_a_pytorch_program_of_which_nothing_was_observed_is_shown_how_it_gets_the_device() -> None:
    story = Story()
    story.finish()
    text = " ".join(page(story.report()).split())
    assert text.endswith("asks torch.accelerator for its device computes on xla where PJRT_DEVICE=CPU is set.")


def test_findings_left_out_are_not_called_clean() -> None:
    report = clean().report()
    text = page(report, hidden=3)
    assert "No findings" not in text
    assert "3 more not shown" in text


@pytest.mark.parametrize("width", [40, 80, 100, 200])
@pytest.mark.parametrize(
    "story", [ragged(), reading(), training(), wild(), Story()], ids=["ragged", "reads", "all", "wild", "none"]
)
def test_no_line_is_wider_than_the_terminal_nor_ends_in_blanks(story: Story, width: int) -> None:
    for line in page(story.report(), width).splitlines():
        assert cell_len(line) <= width
        assert line == line.rstrip(" ")


def test_a_pipe_gets_plain_text() -> None:
    assert "\x1b" not in page(training().report())


def test_a_terminal_gets_colour_and_the_same_words() -> None:
    coloured = page(training().report(), colour=True)
    assert "\x1b[" in coloured
    plain = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in plain.splitlines()] == page(training().report()).splitlines()


def test_nothing_in_a_log_is_taken_for_markup_or_reaches_the_terminal_as_control() -> None:
    text = page(wild().report())
    assert "[red]" in text
    assert "[bold]y[/bold]" in text
    assert "aten::[/]" in text
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\ud800" not in text


@pytest.mark.parametrize("story", [ragged(), reading(), training()], ids=["ragged", "reads", "all"])
@pytest.mark.parametrize("width", [40, 80])
def test_figures_are_neither_cut_nor_wrapped_in_a_narrow_terminal(story: Story, width: int) -> None:
    report = story.report()
    lines = page(report, width).splitlines()
    steps = next(line for line in lines if line.startswith("train ")).split("  ")
    assert duration(report.steps[0].median_s) in [part.strip() for part in steps]
    heads = lines[lines.index(next(line for line in lines if line.startswith("Steps"))) + 1]
    assert heads.split()[:2] == ["steps", "median"]
    for scope in report.scopes:
        row = next(line for line in lines if line.startswith(scope.name) and duration(scope.total_s) in line)
        assert row.endswith(duration(scope.device_idle_s) if scope.device_idle_s > 0 else "-")


@pytest.mark.parametrize(("encoding", "term"), [("ascii", "xterm"), ("utf-8", "dumb"), ("latin-1", "xterm")])
def test_a_terminal_without_these_letters_gets_the_same_page_in_others(
    encoding: str, term: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    show_page(partial(render, training().report()), Console(file=file, width=80, color_system=None))
    plain = raw.getvalue().decode("ascii")
    assert "?" not in plain
    assert re.search(r"^Steps -{50,}$", plain, re.MULTILINE)
    assert re.search(r"^compile +#+[:=#]? +\d", plain, re.MULTILINE)
    monkeypatch.setenv("TERM", "xterm")
    drawn = page(training().report()).splitlines()
    assert [len(line) for line in plain.splitlines()] == [len(line) for line in drawn]


def test_what_the_reader_noted_and_what_is_missing_is_said() -> None:
    story = clean()
    report = story.run().report("run.log", notes=["the last line is torn (7 bytes, skipped)"])
    text = page(report)
    assert "! the last line is torn" in text
    assert "! no end of the recording" in text
    story.finish(error="ValueError")
    assert "! the program ended with ValueError" in page(story.report())


def test_inferred_steps_are_marked() -> None:
    story = Story()
    for _ in range(5):
        story.spend(9)
        story.barrier(story.line(20, "xr.sync()"), 5)
    assert "between barriers" in page(story.report())


def test_a_finding_shows_gain_beside_cost_rhythm_id_and_how_sure_it_is() -> None:
    report = ragged().report()
    (finding,) = report.findings
    sure = page(report)
    assert finding.id in sure
    assert "recompile  high  aten::embedding" in sure
    assert re.search(r"1 x   costs 500 ms$", sure, re.MULTILINE)  # once, so in no step
    per_step = {"cost_per_step_s": 0.024, "gain_per_step_s": 0.019}
    changed = replace(finding, confidence="medium", rhythm="every 7 steps", gain_s=0.4, **per_step)
    unsure = page(replace(report, findings=(changed,)))
    assert "recompile  high  medium confidence" in unsure
    assert re.search(r"1 x   costs 500 ms   24 ms/step$", unsure, re.MULTILINE)
    assert re.search(r"every 7 steps   gain 400 ms   19 ms/step$", unsure, re.MULTILINE)


def test_a_gain_that_others_hide_is_reported_as_what_it_is_first_and_last() -> None:
    report = ragged().report()
    (finding,) = report.findings
    for alone, last, written in (
        (0.4, 2.0, "gain 400 ms to 2.00 s"),
        (2.0, 0.4, "gain 400 ms to 2.00 s"),
        (0.0, 2.0, "gain up to 2.00 s"),
        (2.0, None, "gain 2.00 s   19 ms/step"),
    ):
        one = replace(finding, gain_s=alone, gain_last_s=last, gain_per_step_s=0.019)
        assert re.search(rf"{written}$", page(replace(report, findings=(one,))), re.MULTILINE)


def test_a_finding_without_a_cost_or_a_line_has_room_for_what_is_known() -> None:
    report = ragged().report()
    (finding,) = report.findings
    bare = replace(finding, place=Place(), cost_s=0.0, cost_per_step_s=0.0, gain_s=0.0, gain_per_step_s=0.0, rhythm="")
    text = page(replace(report, findings=(bare,)))
    assert "no line is known" in text
    assert finding.id in text
    for word in ("costs 5", "gain 4", "/step"):
        assert word not in text[text.index("1 finding") :]


@pytest.mark.parametrize("width", [40, 80])
def test_the_section_on_torch_compile_has_functions_versions_time_and_reasons(width: int) -> None:
    compiling = Compiling()
    compiling.compile("0/0", 29_000)
    compiling.broke("1/0", 12, skipped=True, inside="a loop")
    compiling.compile("1/0", 100, ops=0, compiled=False, restarted=90_000_000)
    text = page(compiling.story.report(), width)
    section = text[text.index("torch.compile  ") : text.index("1 finding")]
    assert max(map(len, section.splitlines())) <= width
    words = " ".join(section.split())
    assert "1 graph in 29.1 s, 100% of the run" in words
    assert "forward train.py:10 29.1 s 1 graph, broken at 1 line, all of it runs as plain Python" in words
    assert "29.0 s for the first compilation of 1 graph: normal." in words
    assert "90 ms for what graph breaks made useless or cut off: see the findings." in words


def test_without_steps_nothing_is_said_per_step() -> None:
    compiling = Compiling()
    compiling.broke("0/0", 12, hint="Move it.")
    compiling.compile("0/0", restarted=90_000_000)
    text = page(compiling.story.report())
    assert "costs 90 ms" in text
    assert "/step" not in text


def test_the_backward_graph_is_counted_with_its_forward_everywhere() -> None:
    compiling = Compiling()
    compiling.compile("0/0", 2_000)
    compiling.compile("0/0", 700, backward=True, ops=0)
    text = page(compiling.story.report())
    assert "torch.compile  1 graph in 2.70 s" in text
    assert "No findings: 1 graph" in text
