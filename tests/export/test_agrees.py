"""TensorBoard states what was planted, and every figure that it shares with the report is the report's."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest
from story import MS, Story

from xlaprof import events as ev
from xlaprof.export.told import plain
from xlaprof.export.xplane import XSpace
from xlaprof.log import read as read_log

from .ask import Overview, Tools, curves, export, profile, records, report, texts
from .training import Training

SAMPLES = sorted((Path(__file__).parents[2] / "sample_traces").glob("*.log*"))
BATCH = 'tokens = torch.tensor(tokenize(batch)).to("xla")'


def tokenizing(steps: int = 40, tokenize_ms: float = 26, platform: str = "cpu") -> Training:
    """Each step of 100 ms makes its batch in a scope, copies it in 2 ms, and lets the device run for the rest."""
    story = Training()
    story.events.append(ev.Device(t=story.now, platform=platform, kind=platform))
    line = story.line(46, BATCH)
    for num in range(steps):
        start = story.now
        if not num:
            story.compile_program(500)
        with story.scope("tokenize", line):
            story.spend(tokenize_ms)
        story.upload(2, line)
        story.run_program(98 - tokenize_ms)
        story.end_step("train", num, start)
    return story


def compiling(steps: int = 40) -> Training:
    """Every second step compiles for 150 ms."""
    story = Training()
    for num in range(steps):
        start = story.now
        if num % 2 == 0:
            story.compile_program(150, program=num + 1)
        story.run_program(100, program=num - num % 2 + 1)
        story.end_step("train", num, start)
    return story


def overview(events: list[ev.Event], out: Path) -> Overview:
    return profile(export(events, out)).overview()


def test_a_program_that_tokenizes_for_28_percent_of_its_time_is_input_bound(tmp_path: Path) -> None:
    read = overview(tokenizing().end(), tmp_path)
    assert read.says.startswith("Your program is HIGHLY input-bound because 28.0% of the total step time")
    assert read.next == "Look at Section 3 for the breakdown of input time on the host."
    assert list(read.step_input.values()) == pytest.approx([28] * 39)
    assert list(read.step_idle.values()) == pytest.approx([0] * 39, abs=1e-6)
    assert read.lines[0].startswith(
        "1 finding, explained in the Text tab. 1. idle_gap at /home/me/train.py:46, costs 1.01 s, gain 1.01 s"
    )
    assert "in scope 'tokenize'" in read.lines[0]
    assert "Fix: Do what 'tokenize' does before the loop" in read.lines[0]


def test_the_input_page_names_what_made_the_batches(tmp_path: Path) -> None:
    tables = profile(export(tokenizing().end(), tmp_path)).ask("input_pipeline_analyzer")
    (host,) = [table for table in tables if "enqueue_us" in table.get("p", {})]
    rows = {row["opName"]: (row["count"], row["timeInMs"], row["category"]) for row in records(host)}
    # the first batch was made before the device had run anything: that was not idle time
    assert rows["Iterator::scope tokenize"] == (39, pytest.approx(39 * 26), "Preprocessing")
    assert rows["MemcpyHToD"] == (39, pytest.approx(39 * 2), "Enqueue")


def test_a_program_that_compiles_is_not_input_bound_and_is_told_so(tmp_path: Path) -> None:
    read = overview(compiling().end(), tmp_path)
    assert read.says.startswith("Your program is NOT input-bound because only 0.0%")
    assert {step: ms for step, ms in read.step_idle.items() if ms > 1} == pytest.approx(
        dict.fromkeys(range(2, 40, 2), 150)
    )
    assert "The device was idle 42% of" in read.lines[1]
    assert ": compile 2.85 s (100%)" in read.lines[1]


def test_a_program_that_keeps_the_device_busy_is_bound_by_nothing_else(tmp_path: Path) -> None:
    story = Training()
    story.train(40, host_ms=1, device_ms=99)
    read = overview(story.end(), tmp_path)
    assert read.says.startswith("Your program is NOT input-bound because only 0.0%")
    assert list(read.step_busy.values()) == pytest.approx([99] * 39)
    assert read.lines[0].startswith("No findings")


def test_what_is_written_to_a_log_is_not_input(tmp_path: Path) -> None:
    """Both scopes let the device idle; a batch comes out of one of them alone."""
    story, line, log = Training(), 0, 0
    line, log = story.line(46, BATCH), story.line(50, "writer.add_scalars(...)")
    for num in range(30):
        start = story.now
        with story.scope("write log", log):
            story.spend(20)
        with story.scope("tokenize", line):
            story.spend(10)
        story.upload(1, line)
        story.run_program(69)
        story.end_step("train", num, start)
    read = overview(story.end(), tmp_path)
    assert list(read.step_input.values()) == pytest.approx([11] * 29)
    assert list(read.step_idle.values()) == pytest.approx([20] * 29)
    assert read.says.startswith("Your program is MODERATELY input-bound because 11.0%")


def test_waiting_for_a_loader_is_input_and_so_is_plain_python_that_ends_in_a_copy(tmp_path: Path) -> None:
    story = Training()
    loop, batch, sync = story.line(30, "for batch in loader:"), story.line(46, BATCH), story.line(40, "xla.sync()")
    for num in range(30):
        start = story.now
        if num % 2:
            story.data(30, loop)
        else:
            story.python(20, before=sync, after=batch)
            story.upload(0, batch)  # as JAX does: when is known, how long is not
        story.spend(5)
        story.run_program(60)
        story.end_step("train", num, start)
    read = overview(story.end(), tmp_path)
    assert [read.step_input[num] for num in (1, 2, 3, 4)] == pytest.approx([30, 20, 30, 20])
    assert all(idle == pytest.approx(5) for idle in read.step_idle.values())


def test_the_call_of_a_function_of_jax_lies_between_a_batch_and_its_copy(tmp_path: Path) -> None:
    """The call copies, and says so when it returns; a sample shows that it took long."""
    story = Training()
    batch, call = story.line(46, "x = make(i)"), story.line(47, "w = step(w, x)")
    for num in range(30):
        start = story.now
        with story.scope("make batch", batch):
            story.spend(20)
        story.spend(15)
        story.events.append(ev.Sample(t=story.now - 15 * MS, dur=15 * MS, stack=call, state="call"))
        story.upload(0, call)
        story.run_program(65)
        story.end_step("train", num, start)
    read = overview(story.end(), tmp_path)
    assert list(read.step_input.values()) == pytest.approx([20] * 29)
    assert list(read.step_idle.values()) == pytest.approx([15] * 29)


def test_copies_of_another_thread_make_nothing_of_the_main_thread_input(tmp_path: Path) -> None:
    story = Training()
    line = story.line(46, BATCH)
    for num in range(30):
        start = story.now
        with story.scope("evaluate", line):
            story.spend(30)
        story.events.append(ev.TransferToDevice(t=story.now - 10 * MS, dur=10 * MS, bytes=8, stack=line, tid=2))
        story.run_program(60)
        story.end_step("train", num, start)
    assert set(overview(story.end(), tmp_path).step_input.values()) == {0}


def test_a_step_told_by_its_sums_has_as_much_input_as_the_others(tmp_path: Path) -> None:
    story = tokenizing(20)
    for num in range(20, 60):
        start = story.now
        story.spend(100)
        sums = ev.StepDigest(story.text("train"), num, start, 100 * MS, executions=1, busy=72 * MS, barriers=1)
        story.events.append(sums)
    read = overview(story.end(), tmp_path)
    assert [read.step_input[num] for num in (5, 40)] == pytest.approx([28, 28])


@pytest.mark.parametrize(
    ("platform", "shown"),
    [("cpu", "cpu (shown as a GPU is)"), ("cuda", "cuda (GPU)"), ("tpu", "tpu")],
)
def test_only_a_tpu_has_the_figures_of_a_tpu(platform: str, shown: str, tmp_path: Path) -> None:
    read = overview(tokenizing(platform=platform).end(), tmp_path)
    assert read.device == shown
    assert ("device_duty_cycle_percent" in read.figures) == (platform == "tpu")
    assert ("flop_rate_utilization_relative_to_roofline" in read.figures) == (platform == "tpu")
    # a page without a figure says so, and the line above it says why
    assert read.figures["mxu_utilization_percent"] == read.figures["hbm_utilization_percent"] == "unknown"
    assert "not known" in read.lines[-1]
    if platform == "tpu":
        said = float(read.figures["device_duty_cycle_percent"].rstrip("%")) / 100
        assert said == pytest.approx(1 - report(tokenizing(platform=platform).end()).idle.idle_ratio, abs=0.0005)
    else:
        assert f"The device is {platform}: " in read.lines[-1]


@pytest.mark.parametrize(("name", "training"), [("train", True), ("Training step", True), ("generate", False)])
def test_only_a_training_is_one(name: str, training: bool, tmp_path: Path) -> None:
    """XProf shows step times on its overview of trainings alone."""
    story = Training()
    for num in range(10):
        start = story.now
        story.run_program(50)
        story.end_step(name, num, start)
    tools = profile(export(story.end(), tmp_path))
    assert tools.ask("overview_page")[2]["p"]["is_training"] == str(training).lower()
    assert len(tools.overview().steps) == 9  # known in any case: other pages show them


def test_graphs_that_train_make_a_training_of_steps_without_a_name(tmp_path: Path) -> None:
    story = Story()
    line = story.line(28, "xm.mark_step()", func="main", loops=(22,))
    for _ in range(20):
        story.trace(2)
        story.barrier(line, 5, "step", ops=90, trains=True)
    story.finish()
    assert profile(export(story.events, tmp_path)).ask("overview_page")[2]["p"]["is_training"] == "true"


def test_a_run_without_steps_or_device_is_empty_with_the_reason(tmp_path: Path) -> None:
    story = Training()
    story.spend(100)
    read = overview([*story.events, ev.End(t=story.now)], tmp_path)
    assert not read.steps
    assert read.lines[0].startswith("Nothing was observed")
    assert "The log has no execution on a device: XProf has no idle time to show." in read.lines[1]
    assert "The log has no steps: use xlaprof.StepTrace, or a barrier per step." in read.lines[1]


def test_each_finding_is_a_page_of_text_with_line_code_change_gain_and_fix(tmp_path: Path) -> None:
    events = list(read_log(SAMPLES[0]))
    said, pages = report(events), texts(export(events, tmp_path))
    assert list(pages) == ["report", *(f"findings/{n} {one.kind}" for n, one in enumerate(said.findings, 1))]
    again = pages["findings/2 recompile"]
    assert "**recompile** aten::slice, high, ed529b637df7" in again
    assert "decoder.py:46 in train" in again
    assert "\n    tokens = torch.tensor([tokenizer.encode(passage)" in again
    assert "from s64&#91;8,97&#93; to s64&#91;5,97&#93;" in again
    assert "**Fix:** Pad the last batch to 8 or leave it out." in again
    assert "* Gain if fixed: 1.72 s" in again
    assert "| compile | 3.48 s | 43% |" in pages["report"]


def test_hostile_names_are_text_on_every_page(tmp_path: Path) -> None:
    story = Training()
    bad = "</script><img src=x onerror=alert(1)> [a](http://evil) **b** `c` | d \x1b[31m \u202e\ud800"
    line = story.line(46, bad)
    for num in range(30):
        start = story.now
        with story.scope(bad, line):
            story.spend(40)
        story.upload(1, line)
        story.run_program(59)
        story.end_step("train", num, start)
    written = export(story.end(), tmp_path)
    pages = texts(written)
    text = "\n".join(line for page in pages.values() for line in page.split("\n") if not line.startswith("    "))
    assert "evil" in text
    assert not {"<", "`", "[", "\x1b", "\u202e"} & set(text)
    assert all("\x1b" not in said and "\u202e" not in said for said in profile(written).overview().lines)


@pytest.mark.parametrize("log", SAMPLES, ids=lambda path: path.name)
def test_every_figure_of_a_real_run_is_the_report_s(log: Path, tmp_path: Path) -> None:
    every_figure_agrees(list(read_log(log)), tmp_path)


def test_every_figure_of_planted_runs_is_the_report_s(tmp_path: Path) -> None:
    for number, story in enumerate((tokenizing(), compiling())):
        every_figure_agrees(story.end(), tmp_path / str(number))


def every_figure_agrees(events: list[ev.Event], out: Path) -> None:
    said, written = report(events), export(events, out)
    tools, drawn = profile(written), curves(written)
    read, steps = tools.overview(), said.steps[0]

    # the steps: each one's time as drawn, their mean, median and extremes
    if len(read.steps) == steps.count - 1:  # else one lies beyond the first or last execution
        assert read.step_average == pytest.approx(steps.split.total_s * 1e3 / (steps.count - 1), abs=0.005)
        assert sum(read.step_busy.values()) == pytest.approx(steps.split.device_busy_s * 1e3, rel=1e-6)
    assert steps.count - 2 <= len(read.steps) < steps.count
    curve = drawn[f"{steps.name}/step_time_s"]
    assert max(read.steps.values()) == pytest.approx(steps.max_s * 1e3, abs=0.001)
    assert min(read.steps.values()) == pytest.approx(steps.min_s * 1e3, abs=0.001)
    assert [curve[num] * 1e3 for num in read.steps] == pytest.approx(list(read.steps.values()), rel=1e-4)
    for num, ms in read.steps.items():
        assert read.step_busy[num] + read.step_input[num] + read.step_idle[num] == pytest.approx(ms, abs=0.001)
        assert drawn[f"{steps.name}/device_idle_ratio"][num] == pytest.approx(1 - read.step_busy[num] / ms, abs=1e-4)
    if any(read.step_input.values()):
        waited = drawn[f"{steps.name}/idle_waiting_for_input_s"]
        assert [waited[num] * 1e3 for num in read.steps] == pytest.approx(list(read.step_input.values()), abs=0.001)

    # the device: busy, idle, and each program
    (idle,) = [
        row["total_self_time"]
        for row in records(tools.ask("framework_op_stats")[0])
        if (row["host_or_device"], row["operation"]) == ("Device", "IDLE")
    ]
    assert idle == pytest.approx(said.idle.idle_s * 1e6, rel=1e-6)
    ran: Counter[str] = Counter()
    for row in records(tools.ask("hlo_stats")):
        ran[row["program_id"]] += row["total_self_time"]
    assert sum(ran.values()) == pytest.approx(said.idle.busy_s * 1e6, rel=1e-6)
    for program in said.compilation.programs:  # where two overlap the report counts both
        assert ran.get(str(program.program), 0.0) == pytest.approx(program.busy_s * 1e6, rel=0.01)

    # idle time: every gap has a name, and what all are blamed on is the report's blame
    causes, unnamed = blamed(tools)
    assert not unnamed
    summed = [e for e in events if isinstance(e, ev.StepDigest)]  # divided as a whole, not gap by gap
    others = sum(max(0, e.dur - e.busy) for e in summed) / 1e9
    for cause, seconds in said.idle.causes:
        assert causes.pop(cause, 0.0) / 1e3 == pytest.approx(seconds, abs=others + 1e-6)
    assert not causes

    # the counters, and the words
    for name, count in said.counters.items():
        if f"counters/{name}" in drawn:
            assert max(drawn[f"counters/{name}"].items())[1] == pytest.approx(count, rel=1e-6)
    pages = texts(written)
    for number, finding in enumerate(said.findings, 1):
        assert finding.id in pages[f"findings/{number} {finding.kind}"]
        assert plain(finding.cause) in pages[f"findings/{number} {finding.kind}"]
        assert f"**Fix:** {plain(finding.advice)}" in pages[f"findings/{number} {finding.kind}"]
        if number == 1:
            assert f"{finding.cause} Fix: {finding.advice}" in read.lines[0]


def blamed(tools: Tools) -> tuple[dict[str, float], list[str]]:
    """ms of each cause in the stats of all gaps, and the names of gaps that have none."""
    causes: dict[str, float] = defaultdict(float)
    unnamed = []
    for plane in XSpace.FromString(Path(tools.profile).read_bytes()).planes:
        if not plane.name.startswith("/device:CUSTOM:idle gaps"):
            continue
        names = {entry.key: entry.value.name for entry in plane.stat_metadata}
        kinds = {entry.key: entry.value.name for entry in plane.event_metadata}
        for event in plane.lines[0].events:
            parts = {names[one.metadata_id]: one.double_value for one in event.stats}
            found = {name.removeprefix("ms of "): ms for name, ms in parts.items() if name.startswith("ms of ")}
            if found:
                assert sum(found.values()) == pytest.approx((event.duration_ps + 1) / 1e9)
            elif "recorded as sums" not in kinds[event.metadata_id]:
                unnamed.append(kinds[event.metadata_id])
            for name, ms in found.items():
                causes[name] += ms
    return causes, unnamed
