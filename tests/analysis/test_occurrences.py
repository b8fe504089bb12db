"""When findings happened, found again in the log: as often as they are counted, in the steps in which they were."""

from __future__ import annotations

import pytest
from story import Story, clean

from analysis.test_findings import ragged, reading
from xlaprof.analysis.model import Finding, Place
from xlaprof.analysis.occurrences import MOST, PARTS, Occurrences, occurrences
from xlaprof.events import StepDigest


def happened(story: Story, kind: str) -> tuple[Finding, Occurrences]:
    run = story.run()
    (finding,) = (one for one in run.report().findings if one.kind == kind)
    return finding, occurrences([story.events], run, finding)  # type: ignore[arg-type]


def test_a_recompile_is_reported_with_its_step_and_what_changed() -> None:
    _, found = happened(ragged(), "recompile")
    assert found.total == 1
    (one,) = found.first
    assert (one.step, one.count, one.detail) == (6, 1, "i64[32,16] -> i64[8,16]")
    assert one.dur_s == pytest.approx(0.5)
    assert sum(found.parts) == 1
    assert found.parts.index(1) == int(one.at_s / found.wall_s * PARTS)


def test_reads_are_as_many_as_counted_each_in_its_step() -> None:
    finding, found = happened(reading(), "transfer")
    assert found.total == finding.count
    steps = [one.step for one in found.first if one.step is not None]
    assert steps == sorted(steps)
    assert len(steps) == finding.count


def test_fallbacks_of_this_operation_on_this_line_only() -> None:
    story = Story()
    barrier = story.line(20, "xr.sync()")
    eig, other = story.line(18, "torch.linalg.eigvals(w)"), story.line(19, "torch.linalg.eigvals(v)")
    for n in range(10):
        with story.step():
            story.fallback(eig, "aten::linalg_eig", 3)
            if n % 2:
                story.fallback(other, "aten::linalg_eig", 3)
            story.barrier(barrier, 5, compile=1)
    run = story.run()
    found = {
        finding.place.line: occurrences([story.events], run, finding).total  # type: ignore[arg-type]
        for finding in run.report().findings
        if finding.kind == "fallback"
    }
    assert found == {18: 10, 19: 5}


def test_digests_count_for_their_step() -> None:
    story = clean(5)
    barrier, line = story.line(20, "xr.sync()"), story.line(22, "loss.item()")
    op = story.text("aten::_local_scalar_dense")
    for _ in range(5):
        with story.step():
            story.trace(5)
            story.read(line)
            story.barrier(barrier, 10)
    for n in range(10, 20):
        story.spend(20)
        reads = {f"{line}:{op}": [2, 1_000_000, 600_000], f"{line}:x": [0, 0, 0], "": [1, 0, 0]}
        story.emit(StepDigest(name=story.text("train"), num=n, t=story.now - 20_000_000, dur=20_000_000, reads=reads))
    run = story.run()
    (finding,) = (one for one in run.report().findings if (one.kind, one.place.line) == ("transfer", 22))
    found = occurrences([story.events], run, finding)  # type: ignore[arg-type]
    assert found.total == finding.count == 25
    assert [(one.step, one.count) for one in found.first if one.count > 1] == [(n, 2) for n in range(10, 20)]


def test_scopes_waits_and_plain_python() -> None:
    def idle(kind: str) -> Story:
        story = Story()
        barrier, before = story.line(20, "xr.sync()"), story.line(10, "rows = prepare()")
        for _ in range(20):
            with story.step():
                if kind == "scope":
                    with story.scope("load", before):
                        story.spend(20)
                elif kind == "data":
                    story.data(20, before)
                else:
                    story.python(20, before, barrier)
                story.barrier(barrier, 5, compile=1)
        story.finish()
        return story

    for kind in ("scope", "data", "python"):
        finding, found = happened(idle(kind), "idle_gap")
        assert found.total == finding.count == 19, kind  # in the first step the device has not begun
        assert [one.step for one in found.first] == list(range(1, 20)), kind


def test_many_are_counted_and_the_first_are_reported() -> None:
    story = Story()
    barrier, eig = story.line(20, "xr.sync()"), story.line(18, "torch.linalg.eigvals(w)")
    with story.step():
        for _ in range(MOST + 50):
            story.fallback(eig, "aten::linalg_eig", 0.1)
        story.barrier(barrier, 5)
    _, found = happened(story, "fallback")
    assert (found.total, len(found.first), sum(found.parts)) == (MOST + 50, MOST, MOST + 50)


def test_a_kind_without_events_of_its_own_has_none() -> None:
    story = clean()
    finding = Finding("0" * 12, "unheard of", "low", Place("train.py", 3), "", 1, 0.0, 0.0, "Why.", "What.")
    assert occurrences([story.events], story.run(), finding).total == 0  # type: ignore[arg-type]


def test_events_in_any_order_are_counted_without_a_crash() -> None:
    story = ragged()
    run = story.run()
    (finding,) = run.report().findings
    assert occurrences([story.events[::-1]], run, finding).total == 1  # type: ignore[arg-type]
