"""The cost of compiling, by program; a finding only where a graph is so large that two would compile faster."""

from typing import Any

import msgspec
import pytest
from story import MS, Story

from xlaprof.analysis.model import Finding
from xlaprof.analysis.run import Run
from xlaprof.events import Compile, Event, Execute


def compiled(program: int, seconds: float, ops: int, stack: int = 1, cached: bool = False, loops: int = 0) -> Compile:
    dur = round(seconds * 1e9)
    return Compile(
        t=program * 1_000_000 * MS,
        dur=dur,
        program=program,
        graph=f"{program:x}",
        ops=ops,
        inputs=3,
        outputs=2,
        stack=stack,
        lower=dur // 10,
        backend=dur * 8 // 10,
        cached=cached,
        loops=loops,
    )


def ran(program: int, times: int) -> list[Event]:
    t = program * 1_000_000 * MS + 400_000 * MS
    return [
        Execute(seq=i, program=program, t=t + i * MS, start=t + i * MS, end=t + i * MS + MS // 2) for i in range(times)
    ]


def findings(*events: Event) -> list[Finding]:
    report = Run().feed_all(events).report()
    return [finding for finding in report.findings if finding.kind == "compile_cost"]


def test_every_program_is_reported_with_what_it_took_and_what_for() -> None:
    events = [compiled(1, 10.0, 500), *ran(1, 4), compiled(2, 2.0, 80, stack=2, cached=True), *ran(2, 1)]
    stat = Run().feed_all(events).report().compilation
    assert (stat.count, stat.cached, stat.once) == (2, 1, 1)
    assert stat.total_s == pytest.approx(12.0)
    assert stat.lower_s == pytest.approx(1.2)
    assert stat.backend_s == pytest.approx(9.6)
    assert stat.saved_s == pytest.approx(8.0)  # the second came from the cache already
    assert (stat.loaded_s, stat.unkept) == (0.0, ())
    first, second = stat.programs
    assert (first.program, first.ops, first.inputs, first.outputs, first.runs, first.cached) == (1, 500, 3, 2, 4, False)
    assert first.busy_s == pytest.approx(4 * 0.0005)
    assert (second.program, second.runs, second.cached) == (2, 1, True)


def test_short_runs_that_are_told_as_one_are_counted_each() -> None:
    once, *_ = ran(1, 1)
    assert isinstance(once, Execute)
    events = [compiled(1, 10.0, 500), msgspec.structs.replace(once, calls=64, stack=1), *ran(1, 1)]
    run = Run().feed_all(events)
    (program,) = run.report().compilation.programs
    assert (program.runs, run.report().compilation.once) == (65, 0)


def test_what_a_cache_spared_and_what_it_does_not_keep_is_told() -> None:
    def kept(program: int, **more: Any) -> Compile:
        return msgspec.structs.replace(compiled(program, 1.0, 50), **more)

    report = Run().feed_all(
        [
            kept(1, cached=True, kept=True, spared=7_000 * MS),
            kept(2, kept=True),
            kept(3, unkept="it checks values"),
            kept(4, unkept="it checks values"),
            kept(5, unkept="jax cannot write it down"),
        ]
    ).report()  # fmt: skip
    stat = report.compilation
    assert (stat.cached, stat.loaded_s) == (1, pytest.approx(7.0))
    assert stat.unkept == (("it checks values", 2), ("jax cannot write it down", 1))


def test_ranks_add_up() -> None:
    one, two = (Run().feed_all([compiled(1, 10.0, 500), *ran(1, 4)]) for _ in range(2))
    stat = (one + two).report().compilation
    assert stat.count == 2
    assert stat.saved_s == pytest.approx(16.0)
    assert [program.runs for program in stat.programs] == [4, 4]


def test_a_graph_much_more_expensive_for_its_size_than_the_others_is_a_finding() -> None:
    (finding,) = findings(compiled(1, 2.0, 1_000), compiled(2, 90.0, 10_000, stack=2))
    assert "10,000 operations took 90.0 s" in finding.cause
    assert "4.5 times" in finding.cause
    assert finding.cost_s == pytest.approx(70.0)  # 10,000 operations at 2 ms are 20 s
    assert finding.confidence == "medium"


@pytest.mark.parametrize(
    "events",
    [
        [compiled(1, 2.0, 1_000), compiled(2, 20.0, 10_000)],  # as expensive as the others
        [compiled(1, 2.0, 1_000), compiled(2, 50.0, 10_000)],  # less than a minute
        [compiled(1, 2.0, 1_000), compiled(2, 90.0, 10_000, cached=True)],
        [compiled(1, 2.0, 1_000), compiled(2, 90.0, 10_000, loops=50)],  # an unrolled loop: missing_barrier
        [compiled(2, 90.0, 10_000)],  # nothing to compare with
        [compiled(1, 290.0, 900)],  # a small graph is not made faster by cutting it
    ],
)
def test_no_false_alarm(events: list[Event]) -> None:
    assert findings(*events) == []


def test_minutes_for_one_graph_are_a_finding_without_comparison() -> None:
    (finding,) = findings(compiled(1, 400.0, 60_000))
    assert finding.confidence == "low"
    assert finding.cost_s == pytest.approx(200.0)


def test_a_clean_training_has_none() -> None:
    story = Story()
    barrier = story.line(20)
    for _ in range(10):
        with story.step():
            story.barrier(barrier, device=10, compile=20_000)
    story.finish()
    assert story.findings("compile_cost") == []
