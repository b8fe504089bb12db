"""XProf reads back what the report says: step times, idle, lanes, lines of code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from story import MS, Story

from xlaprof import events as ev
from xlaprof.log import read as read_log

from .ask import export, profile, report
from .training import START, Training

SAMPLES = Path(__file__).parents[2] / "sample_traces"


def agrees(events: list[ev.Event], out: Path) -> None:
    """XProf's figures of ``events`` are the report's, within 1 %."""
    said, read = report(events), profile(export(events, out)).overview()
    assert read.step_median == pytest.approx(said.steps[0].median_s * 1e3, rel=0.01)
    # XProf prints one decimal of a percentage: half of that is its own.
    assert read.idle == pytest.approx(said.idle.idle_ratio, rel=0.01, abs=0.0005)


def test_planted_step_time_and_idle_are_what_xprof_says(tmp_path: Path) -> None:
    story = Training()
    story.train(50, host_ms=4, device_ms=6)
    events = story.end()
    read = profile(export(events, tmp_path)).overview()
    assert read.step_average == pytest.approx(10)
    assert set(read.steps) == set(range(1, 50))  # the program's numbers, without the first step
    assert set(read.steps.values()) == {10}
    assert read.idle == pytest.approx(4 * 49 / (10 * 49 + 6), abs=0.0005)  # from the first execution to the last
    assert all(idle == pytest.approx(4) for idle in read.step_idle.values())
    assert read.device == "NVIDIA H200 (GPU)"
    agrees(events, tmp_path / "again")


def test_a_compile_in_the_middle_is_idle_time_of_its_own_step(tmp_path: Path) -> None:
    story = Training()
    story.train(20)
    start = story.now
    story.compile_program(300, program=2)
    story.run_program(6, program=2)
    story.end_step("train", 20, start)
    story.train(20, first=21)
    events = story.end()
    read = profile(export(events, tmp_path)).overview()
    assert read.step_idle[20] == pytest.approx(300)
    assert read.step_idle[21] == pytest.approx(4)
    agrees(events, tmp_path / "again")


def test_executions_that_cross_the_border_of_a_step_count_to_both(tmp_path: Path) -> None:
    story = Training()
    # The host runs ahead: each execution begins 1 ms before the end of its step and ends 5 ms into the next.
    for num in range(30):
        start = story.now
        story.spend(9)
        story.run_program(6, wait=False)
        story.spend(1)
        story.end_step("train", num, start)
    events = story.end()
    read = profile(export(events, tmp_path)).overview()
    assert all(idle == pytest.approx(4) for idle in read.step_idle.values())
    agrees(events, tmp_path / "again")


def test_a_host_that_runs_far_ahead_of_the_device(tmp_path: Path) -> None:
    story = Training()
    story.train(40, host_ms=2, device_ms=6, wait=False)
    agrees(story.end(), tmp_path)


def test_of_several_kinds_of_steps_the_one_with_most_time_is_averaged(tmp_path: Path) -> None:
    story = Training()
    for epoch in range(4):
        story.train(10, first=10 * epoch)
        for num in range(3):
            start = story.now
            story.spend(1)
            story.run_program(2)
            story.end_step("eval", num, start)
    events = story.end()
    read = profile(export(events, tmp_path)).overview()
    assert set(read.steps) == set(range(1, 40))
    agrees(events, tmp_path / "again")


def test_step_numbers_that_begin_again_each_epoch(tmp_path: Path) -> None:
    story = Training()
    for _ in range(3):
        story.train(10, first=0)
    events = story.end()
    read = profile(export(events, tmp_path)).overview()
    assert len(read.steps) == 29  # XProf would have merged steps of equal number
    agrees(events, tmp_path / "again")


def test_steps_are_inferred_from_the_barrier_of_the_loop(tmp_path: Path) -> None:
    story = Training()
    story.compile_program(200)
    for _ in range(40):
        story.spend(5)
        story.run_program(3)
    events = story.end()
    read = profile(export(events, tmp_path)).overview()
    assert read.step_median == pytest.approx(8)
    agrees(events, tmp_path / "again")


@pytest.mark.parametrize("trains", [False, True])
def test_an_export_has_the_steps_of_the_report(trains: bool, tmp_path: Path) -> None:
    """A barrier in a loop over buffers is reached most often, and ends no step."""
    story = Story()
    inner = story.line(16, "xm.mark_step()", func="decay", outer=(29,), loops=(14, 22), call="decay(buffers)")
    end = story.line(28, "xm.mark_step()", func="main", loops=(22,))
    for _ in range(20):
        for number in range(4):
            story.barrier(inner, 0.02, f"buffer {number}", 5, ops=3)
        story.trace(2)
        story.barrier(end, 5, "step", ops=90, trains=trains)
    story.finish()
    assert export(story.events, tmp_path).steps == story.report().steps[0].count == 20


def test_steps_told_by_their_sums(tmp_path: Path) -> None:
    story = Training()
    story.train(5)
    for num in range(5, 60):
        start = story.now
        story.spend(10)
        digest = ev.StepDigest(
            name=story.text("train"), num=num, t=start, dur=10 * MS, executions=3, busy=6 * MS, barriers=3, tracing=MS
        )
        story.events.append(digest)
    story.free = story.now
    story.train(5, first=60)
    events = story.end()
    tools = profile(export(events, tmp_path))
    read = tools.overview()
    assert read.step_idle[30] == pytest.approx(4)
    assert any(e["name"] == "summed executions" for e in tools.trace() if e["thread"] == "XLA Modules")
    agrees(events, tmp_path / "again")


def test_two_devices_are_two_planes(tmp_path: Path) -> None:
    story = Training()
    for num in range(20):
        start = story.now
        story.spend(4)
        for device, ms in ((0, 6), (1, 3)):
            story.free = story.now
            story.run_program(ms, wait=False, device=device)
        story.now += 6 * MS
        story.end_step("train", num, start)
    events = story.end()
    tools = profile(export(events, tmp_path))
    assert {"/device:TPU:0", "/device:TPU:1"} <= {e["process"] for e in tools.trace()}
    agrees(events, tmp_path / "again")


def test_the_trace_viewer_shows_lanes_with_the_lines_of_the_user(tmp_path: Path) -> None:
    story = Training()
    story.train(3)
    start = story.now
    read = story.line(44, "loss.item()")
    story.events.append(
        ev.TransferFromDevice(
            t=story.now, dur=2 * MS, wait=MS, bytes=4, op=story.text("aten::_local_scalar_dense"), stack=read
        )
    )
    story.spend(2)
    story.events.append(ev.Gc(t=story.now, dur=MS, generation=2))
    story.spend(1)
    story.events.append(ev.DataWait(t=story.now, dur=3 * MS, stack=story.line(30, "for batch in loader:")))
    story.spend(3)
    chosen, sync = story.line(45, "x.nonzero()"), story.line(40, "xla.sync()")
    story.events.append(ev.Fallback(t=story.now, dur=MS, op=story.text("aten::nonzero"), stack=chosen))
    story.spend(1)
    story.events.append(ev.Hole(t=story.now, dur=5 * MS, before=chosen, after=sync))
    story.spend(5)
    story.events.append(ev.GraphBreak(t=story.now, reason="data-dependent", stack=read))
    of_the_user: dict[str, Any] = {"batch": 3, "where": "end", "group_id": 99}
    story.events.append(ev.Scope(name=story.text("log"), t=start, dur=story.now - start, meta=of_the_user))
    story.run_program(6)
    story.end_step("train", 3, start)
    tools = profile(export(story.end(), tmp_path))
    drawn = tools.trace()

    def one(name: str) -> dict[str, Any]:
        (event,) = [e for e in drawn if e["name"] == name]
        return {**event, "args": tools.details(event)}

    transfer = one("transfer from device: aten::_local_scalar_dense")
    assert (transfer["process"], transfer["thread"]) == ("/host:CPU", "MainThread")
    assert transfer["args"]["line"] == "train.py:44"
    assert transfer["args"]["code"] == "loss.item()"
    assert transfer["args"]["wait_us"] == pytest.approx(1000)
    assert transfer["ts"] == pytest.approx((start - START) / 1e3)
    assert transfer["dur"] == pytest.approx(2000)
    assert one("fallback: aten::nonzero")["args"]["line"] == "train.py:45"
    assert one("data wait")["args"]["line"] == "train.py:30"
    assert one("garbage collection")["args"]["generation"] == 2
    assert one("compile program 1")["dur"] == pytest.approx(500_000)
    assert one("graph break")["args"]["reason"] == "data-dependent"
    hole = one("no operation recorded")
    assert hole["thread"] == "MainThread: between operations"
    assert (hole["args"]["from_line"], hole["args"]["to_line"]) == ("train.py:45", "train.py:40")
    # A key of the user's that XProf has a meaning for does no harm.
    assert one("log")["args"] | {"meta.batch": 3, "meta.where": "end", "meta.group_id": 99} == one("log")["args"]
    modules = [e for e in drawn if e["thread"] == "XLA Modules"]
    assert {tools.details(e)["line"] for e in modules} == {"train.py:40"}
    assert {e["name"] for e in drawn if e["thread"] == "XLA Ops"} == {"program 1 at train.py:40"}
    assert [e["dur"] for e in modules] == pytest.approx([6000] * 4)


def test_idle_gaps_have_a_lane_that_names_their_cause(tmp_path: Path) -> None:
    story = Training()
    story.train(5)
    start = story.now
    story.compile_program(80, program=2)
    story.run_program(6, program=2)
    story.end_step("train", 5, start)
    tools = profile(export(story.end(), tmp_path))
    drawn = tools.trace()
    gaps = [e for e in drawn if e["process"] == "/device:CUSTOM:idle gaps of device 0"]
    assert sum(e["dur"] for e in gaps) == pytest.approx(4 * 4000 + 80_000)
    (long,) = [e for e in gaps if e["dur"] > 50_000]
    assert long["name"] == "idle: compile"
    assert tools.details(long)["line"] == "train.py:40"


def test_arrows_lead_from_a_barrier_to_its_execution(tmp_path: Path) -> None:
    story = Training()
    story.train(5)
    drawn = profile(export(story.end(), tmp_path)).trace()
    out = sorted(e["bind_id"] for e in drawn if e["name"] == "barrier (sync)" and e.get("flow_out"))
    into = sorted(e["bind_id"] for e in drawn if e["thread"] == "XLA Modules" and e.get("flow_in"))
    assert out == into
    assert len(set(out)) == 5


def test_tools_of_xprof_that_count_programs(tmp_path: Path) -> None:
    story = Training()
    story.train(9)
    tools = profile(export(story.end(), tmp_path))
    table = tools.ask("hlo_stats")
    columns = [column["id"] for column in table["cols"]]
    (row,) = [dict(zip(columns, (cell["v"] for cell in r["c"]), strict=True)) for r in table["rows"]]
    assert row["hlo_op_name"] == "program 1 at train.py:40"
    assert row["occurrences"] == 9
    assert row["total_time"] == pytest.approx(9 * 6000)
    assert row["source_info"] == "train.py:40" or "train.py:40" in str(row.values())


@pytest.mark.parametrize("log", sorted(SAMPLES.glob("*.log*")), ids=lambda path: path.name)
def test_recordings_of_real_trainings_agree(log: Path, tmp_path: Path) -> None:
    agrees(list(read_log(log)), tmp_path)
