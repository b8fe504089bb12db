"""TensorBoard reads back the curves: each step's figures, at the step's number."""

from __future__ import annotations

from pathlib import Path

import pytest
from story import MS

from xlaprof import events as ev

from .ask import curves, export
from .training import Training


def test_every_step_has_its_time_idle_and_compile_seconds(tmp_path: Path) -> None:
    story = Training()
    story.train(10, host_ms=4, device_ms=6)
    read = curves(export(story.end(), tmp_path))
    assert read["train/step_time_s"] == pytest.approx({0: 0.51} | dict.fromkeys(range(1, 10), 0.010))
    assert read["train/device_idle_ratio"] == pytest.approx({0: 504 / 510} | dict.fromkeys(range(1, 10), 0.4))
    assert read["train/compile_s"] == pytest.approx({0: 0.5} | dict.fromkeys(range(1, 10), 0))
    assert read["train/compiles"] == {0: 1} | dict.fromkeys(range(1, 10), 0)
    assert read["train/executions"] == dict.fromkeys(range(10), 1)


def test_what_the_host_did_counts_to_the_step_it_began_in(tmp_path: Path) -> None:
    story = Training()
    story.train(2)
    start = story.now
    read = story.line(44, "loss.item()")
    for _ in range(3):
        story.events.append(ev.TransferFromDevice(t=story.now, dur=2 * MS, wait=MS, bytes=4, stack=read))
        story.spend(2)
    story.events.append(ev.Fallback(t=story.now, dur=5 * MS, op=story.text("aten::nonzero"), stack=read))
    story.spend(5)
    story.events.append(ev.Gc(t=story.now, dur=MS, generation=0))
    story.spend(1)
    story.events.append(ev.DataWait(t=story.now, dur=7 * MS))
    story.spend(7)
    story.end_step("train", 2, start)
    story.train(1, first=3)
    read_back = curves(export(story.end(), tmp_path))
    at = {tag.removeprefix("train/"): values[2] for tag, values in read_back.items() if tag.startswith("train/")}
    assert at["transfers_from_device"] == 3
    assert at["transfer_from_device_s"] == pytest.approx(0.006)
    assert at["transfer_wait_s"] == pytest.approx(0.003)
    assert (at["fallbacks"], at["fallback_s"]) == (1, pytest.approx(0.005))
    assert at["gc_s"] == pytest.approx(0.001)
    assert at["data_wait_s"] == pytest.approx(0.007)
    assert read_back["train/transfers_from_device"][3] == 0


def test_what_never_happened_has_no_curve(tmp_path: Path) -> None:
    story = Training()
    story.train(3)
    assert not [tag for tag in curves(export(story.end(), tmp_path)) if "fallback" in tag or "data_wait" in tag]


def test_counters_are_exact_and_lie_at_the_last_step_before_them(tmp_path: Path) -> None:
    story = Training()
    story.train(6)
    read = curves(export(story.end(), tmp_path))
    assert read["counters/CompileTime"] == {5: 1}
    assert read["counters/CompileTime_s"] == {5: 0.5}
    assert read["counters/aten::nonzero"] == {5: 3}


def test_a_step_told_by_its_sums_has_the_figures_of_its_sums(tmp_path: Path) -> None:
    story = Training()
    story.train(2)
    start = story.now
    story.spend(10)
    read_at = story.line(44, "loss.item()")
    story.events.append(
        ev.StepDigest(
            name=story.text("train"),
            num=2,
            t=start,
            dur=10 * MS,
            executions=4,
            busy=7 * MS,
            tracing=2 * MS,
            barriers=3,
            scopes={str(story.text("forward")): [4, 8 * MS, 3 * MS]},
            reads={f"{read_at}:{story.text('aten::item')}": [5, 6 * MS, 2 * MS]},
        )
    )
    read = curves(export(story.end(), tmp_path))
    assert read["train/executions"][2] == 4
    assert read["train/barriers"][2] == 3
    assert read["train/tracing_s"][2] == pytest.approx(0.002)
    assert read["train/device_idle_ratio"][2] == pytest.approx(0.3)
    assert read["train/transfers_from_device"][2] == 5
    assert read["train/transfer_from_device_s"][2] == pytest.approx(0.006)


def test_steps_of_several_names_have_curves_of_their_own(tmp_path: Path) -> None:
    story = Training()
    story.train(3)
    start = story.now
    story.run_program(2)
    story.end_step("eval", 0, start)
    read = curves(export(story.end(), tmp_path))
    assert read["eval/step_time_s"] == {0: pytest.approx(0.002)}
    assert set(read["train/step_time_s"]) == {0, 1, 2}


def test_a_second_epoch_counts_on_instead_of_running_back(tmp_path: Path) -> None:
    story = Training()
    for _ in range(2):
        story.train(3, first=0)
    assert set(curves(export(story.end(), tmp_path))["train/step_time_s"]) == {0, 1, 2, 3, 4, 5}


def test_a_long_name_is_cut_in_its_tag_and_two_that_begin_alike_stay_two_curves(tmp_path: Path) -> None:
    story = Training()
    for ending in ("a", "b"):
        start = story.now
        story.spend(5)
        story.end_step("x" * 4_000 + ending, 0, start)
    tags = [tag for tag in curves(export(story.end(), tmp_path)) if tag.endswith("/step_time_s")]
    assert tags == [f"{'x' * 120}... ({number})/step_time_s" for number in (1, 2)]
