"""Every second of a run is in one account: what findings explain of it, what is normal, what nothing explains."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from story import MS, Story, clean

from analysis.test_batches import ordered, streams, trainings
from analysis.test_findings import ragged, reading
from analysis.test_run import training
from xlaprof.analysis.model import Account, Report
from xlaprof.analysis.run import Run
from xlaprof.events import AnyEvent, Change, Compile, Compiling, Counters, DynamoCompile, Look


def account(report: Report, what: str) -> Account:
    (found,) = (one for one in report.accounts if one.what == what)
    return found


def two_phases() -> Story:
    """Set-up for 3 s, two graphs compiled for 8.2 s, 20 steps, 500 ms of farewell."""
    story = Story()
    story.spend(3000)
    train, evaluate = story.line(120, "xr.sync()"), story.line(88, "xr.sync()")
    for _ in range(20):
        with story.step():
            story.trace(2)
            story.barrier(train, 10, compile=5200)
            story.trace(1)
            story.barrier(evaluate, 30, "evaluation", compile=3000)
            story.spend(32)
    story.wait()
    story.spend(500)
    story.finish()
    return story


def test_first_compilations_are_normal_and_named_by_their_barriers() -> None:
    compiling = account(two_phases().report(), "compile")
    assert compiling.total_s == compiling.normal_s == pytest.approx(8.2)
    assert compiling.costly
    assert compiling.text == (
        "8.20 s (66%) compiling, normal: 2 graphs first compiled at train.py:120 (5.20 s) and train.py:88 (3.00 s)."
    )


def test_the_accounts_are_the_whole_run() -> None:
    report = two_phases().report()
    assert [one.what for one in report.accounts] == ["compile", "before", "busy", "after", "idle"]
    assert sum(one.total_s for one in report.accounts) == pytest.approx(report.run.wall_s)
    assert account(report, "before").total_s == pytest.approx(2.9932)  # a dispatch is over when its program begins
    assert account(report, "busy").total_s == pytest.approx(report.idle.busy_s)
    assert account(report, "after").total_s == pytest.approx(0.5)


def test_the_devices_own_work_stands_at_the_lines_that_have_it_run() -> None:
    one, two = two_phases(), two_phases()
    lines = "device busy, normal: the program's own work, run at train.py:88 ({}) and train.py:120 ({})."
    assert account(one.report(), "busy").text == f"800 ms (6%) {lines.format('600 ms', '200 ms')}"
    both = (one.run() + two.run()).report()
    assert account(both, "busy").text == f"1.60 s (6%) {lines.format('1.20 s', '400 ms')}", "of two ranks, too"


def test_what_a_finding_explains_is_not_called_normal() -> None:
    report = ragged().report()
    (recompile,) = report.findings
    compiling = account(report, "compile")
    assert (compiling.explained_s, compiling.normal_s) == (pytest.approx(0.5), pytest.approx(0.5))
    assert compiling.findings == (recompile.id,)
    assert "500 ms (41%) explained by findings (recompile); 500 ms (41%) normal: 1 graph first" in compiling.text


def test_a_read_explains_the_idle_time_behind_it() -> None:
    report = reading().report()
    idle = account(report, "idle")
    assert [one.kind for one in report.findings] == ["transfer"]
    assert idle.explained_s > 0.9 * idle.total_s


def test_a_compile_that_two_findings_count_is_charged_once() -> None:
    story = Story()
    barrier, line = story.line(20, "xr.sync()"), story.line(12, "x = cat(x, y)")
    for n in range(12):  # each graph has more operations than the one before, and is compiled
        with story.step():
            story.trace(2)
            change = Change("operation", "", "aten::cat", "aten::cat", stack=line, added=n + 1) if n else None
            story.barrier(barrier, 5, f"graph {n}", compile=100, ops=100 * (n + 1), change=change)
    report = story.report()
    compiling = account(report, "compile")
    assert compiling.total_s == pytest.approx(1.2)
    assert compiling.explained_s == pytest.approx(1.1)
    assert sum(one.total_s for one in report.accounts) == pytest.approx(report.run.wall_s)


def test_plain_python_that_nothing_was_seen_of_is_unexplained() -> None:
    story = Story()
    barrier = story.line(20, "xr.sync()")
    for _ in range(60):
        with story.step():
            story.trace(2)
            story.barrier(barrier, 12)
            story.wait()
            story.spend(8)
    report = story.report()
    assert report.clean
    idle = account(report, "idle")
    assert idle.unexplained_s == pytest.approx(59 * 0.008)
    assert idle.normal_s == pytest.approx(59 * 0.0022)
    assert "unexplained: nothing was recorded of what the host did." in idle.text


def test_plain_python_between_two_lines_is_a_finding_or_named_as_unexplained() -> None:
    story = Story()
    barrier, before, after = story.line(20, "xr.sync()"), story.line(12, "y = a(x)"), story.line(13, "z = b(y)")
    for _ in range(60):  # neighbouring lines: that alone does not convict them
        with story.step():
            story.trace(2)
            story.python(9, before, after)
            story.barrier(barrier, 12)
            story.wait()
    report = story.report()
    assert report.clean
    assert account(report, "idle").unexplained_s == pytest.approx(59 * 0.009)
    assert "unexplained: python train.py:12-13" in account(report, "idle").text


def test_of_plain_python_that_nothing_was_recorded_of_the_line_is_named_where_looks_found_it() -> None:
    story = Story()
    barrier, line = story.line(20, "xr.sync()"), story.line(31, "env.step(action)")
    for n in range(60):
        with story.step():
            story.trace(2)
            story.barrier(barrier, 12)
            story.wait()
            if not n % 10:
                story.emit(Look(story.now, 8 * MS, line, "python"))
            story.spend(8)
    assert "what the host did (the main thread was seen at train.py:31)" in account(story.report(), "idle").text


def test_one_long_pause_is_named_and_no_defect() -> None:
    story = Story()
    barrier, before, after = story.line(20, "xr.sync()"), story.line(30, "save(model)"), story.line(34, "go_on()")
    for n in range(20):
        with story.step():
            story.trace(2)
            story.barrier(barrier, 10, compile=100)
            story.wait()
        if n == 10:
            story.python(300, before, after)
    report = story.report()
    assert report.clean
    assert account(report, "idle").unexplained_s == 0
    assert "normal: python train.py:30-34, once" in account(report, "idle").text


def test_a_single_pause_of_which_nothing_is_known_is_unexplained_all_the_same() -> None:
    story = Story()
    barrier = story.line(20, "xr.sync()")
    for n in range(20):
        with story.step():
            story.trace(2)
            story.barrier(barrier, 10, compile=100)
            story.wait()
        story.spend(300 if n == 10 else 0)
    idle = account(story.report(), "idle")
    assert idle.unexplained_s == pytest.approx(0.3)
    assert "unexplained: nothing was recorded of what the host did" in idle.text


def test_of_many_small_causes_the_largest_is_named() -> None:
    story = Story()
    barrier = story.line(20, "xr.sync()")
    for n in range(150):
        with story.step():
            story.trace(2)
            story.python(9, story.line(100 + 2 * (n // 3), "a()"), story.line(101 + 2 * (n // 3), "b()"))
            story.barrier(barrier, 5, compile=100)
            story.wait()
    idle = account(story.report(), "idle")
    assert idle.unexplained_s == pytest.approx(0.009 * 147)  # the first line has two gaps only: two pauses
    assert idle.text.endswith("more.")
    assert "unexplained: python train.py:1" in idle.text


def test_a_graph_compiled_again_for_no_known_reason_is_unexplained() -> None:
    story = Story()
    barrier = story.line(20, "xr.sync()")
    for n in range(10):
        with story.step():
            story.trace(2)
            story.barrier(barrier, 10, "late" if n > 6 else "first", compile=200)
    compiling = account(story.report(), "compile")
    assert (compiling.normal_s, compiling.unexplained_s) == (pytest.approx(0.2), pytest.approx(0.2))
    assert "unexplained: compiled again at train.py:20" in compiling.text


def test_the_second_graph_of_an_optimizer_is_normal() -> None:
    story = Story()
    barrier, step = story.line(20, "xr.sync()"), story.line(19, "optimizer.step()")
    for n in range(10):
        with story.step():
            story.trace(2)
            change = Change("inputs", "3", "5", "state", role="state", stack=step) if n == 1 else None
            story.barrier(barrier, 10, "second" if n else "first", compile=200, change=change)
    report = story.report()
    assert report.clean
    assert account(report, "compile").normal_s == pytest.approx(0.4)
    assert "1 graph compiled again once the optimizer has its state, at train.py:20" in account(report, "compile").text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (Change("operation", "add_", "mul_", role="optimizer"), "once the optimizer has its state, at train.py:40"),
        (Change("operation", "copy_", "add_", role="grad"), "in the warm-up, once there are gradients to add to, at"),
        (
            Change("inputs", "computed in the graph", "held from before", "self of aten::lerp_"),
            "in the warm-up, once a value of train.py:36 (mean.lerp_(x, 0.1)) is kept from the step before, at",
        ),
        (
            Change("outputs", "dropped", "kept", "value of aten::mm", name="history"),
            "in the warm-up, for another result is still held (history of train.py:36 (mean.lerp_(x, 0.1))), at",
        ),
        (
            Change("operation", "aten::empty", "aten::mm"),
            "in the warm-up, for aten::mm came where aten::empty had been of train.py:36",
        ),
    ],
)
def test_what_replaced_the_first_graph_is_named(change: Change, said: str) -> None:
    story = Story()
    barrier, line = story.line(40, "xr.sync()", loops=(34,)), story.line(36, "mean.lerp_(x, 0.1)", loops=(34,))
    for n in range(12):
        story.trace(2)
        change = msgspec.structs.replace(change, stack=line)
        story.barrier(barrier, 10, "later" if n else "first", compile=200, change=change if n == 1 else None)
    report = story.report()
    assert report.clean
    assert f"1 graph compiled again {said}" in account(report, "compile").text


@pytest.mark.parametrize(("seen", "stage", "phase"), [(False, False, True), (True, True, True), (True, False, False)])
def test_another_phase_has_lines_of_its_own_or_is_a_stage_that_is_meant(seen: bool, stage: bool, phase: bool) -> None:
    story = Story()
    barrier, late = story.line(40, "xr.sync()", loops=(34,)), story.line(36, "loss = loss + penalty()", loops=(34,))
    decides = story.line(35, "if epoch > 1:", loops=(34,)) if stage else 0
    change = Change("operation", "aten::mm", "aten::add", stack=late, made=late, condition=decides, code_seen=seen)
    for n in range(48):
        with story.step():
            graph = "late" if n >= 24 else "early"
            story.barrier(barrier, 10, graph, compile=400, change=change if n == 24 else None)
            story.spend(12)
    report = story.report()
    compiling = next(one for one in report.accounts if one.what == "compile")
    assert ("for another phase" in compiling.reason) is (phase and not compiling.findings)
    assert bool(compiling.findings) is not stage, "a line that is reached again, and no condition decides on, is told"


def test_what_comes_after_the_training_is_no_warm_up() -> None:
    """Three samples are drawn at the end, the last one at a temperature of exactly 1."""
    story = Story()
    barrier, read = story.line(40, "xr.sync()"), story.line(62, "sample = draw(t).cpu()")
    draw = story.line(51, "z = t * torch.randn(n)")
    for _ in range(30):
        with story.step():
            story.barrier(barrier, 10, "step", compile=100)
    special = Change("scalar", "0.85", "1.0", "other of aten::mul", stack=draw)
    for graph in ("other", "other", "one"):
        story.compile(graph, 300, read, special if graph == "one" else None, "read")
        story.execute(graph, 5, read, "read")
        story.read(read)
    compiling = account(story.report(), "compile").text
    assert "1 graph compiled again, for 1.0 came where 0.85 had been of train.py:51" in compiling
    assert "warm-up" not in compiling


def test_what_is_compiled_for_a_read_alone_is_the_reads_in_the_warm_up_too() -> None:
    story = Story()
    barrier, item = story.line(44, "xr.sync()"), story.line(41, "print(loss.item())")
    aliased = Change("aliasing", "the same tensor as elsewhere", "another tensor", "self of aten::t", stack=item)
    for n in range(20):
        story.trace(4)
        graph = "loss, second" if n else "loss, first"
        story.compile(graph, 300, item, trigger="read", change=aliased if n else None)
        story.execute(graph, 5, item, "read")
        story.read(item)
        story.barrier(barrier, 12)
        story.spend(6)
    report = story.report()
    (read,) = report.findings
    assert read.cost_s > 0.6
    assert "as 2 graphs of its own that took 600 ms to compile" in read.cause
    compiling = account(report, "compile")
    assert (compiling.explained_s, compiling.normal_s) == (pytest.approx(0.6), pytest.approx(0.5))


def test_what_torch_compile_took_has_an_account_without_a_device_too() -> None:
    story = Story()
    for n in range(3):
        start = story.now
        story.spend(400)
        code, func = story.line(5 + n, "def f(x):", func="f"), story.text("f")
        story.emit(
            DynamoCompile(
                t=start,
                dur=story.now - start,
                compile=f"{n}/0",
                func=func,
                code=code,
                ops=3,
                compiled=True,
                stack=story.line(9),
            )
        )
    story.spend(800)
    story.finish()
    (only,) = story.report().accounts
    assert (only.what, only.total_s, only.normal_s) == ("torch.compile", pytest.approx(1.2), pytest.approx(1.2))
    assert only.share == pytest.approx(0.6)


def test_the_persistent_cache_saves_what_it_did_not_hold() -> None:
    def text(*graphs: tuple[str, bool], **more: Any) -> str:
        story = two_phases()
        for program, (trigger, cached) in enumerate(graphs, 10):
            start = story.now
            story.spend(10_000)
            dur = story.now - start
            story.emit(
                Compile(
                    t=start, dur=dur, program=program, graph=f"{program}", ops=9, inputs=1, outputs=1, trigger=trigger,
                    stack=story.line(program), backend=dur * 9 // 10, cached=cached, **more,
                )
            )  # fmt: skip
        return account(story.report(), "compile").text

    assert text(("sync", False), ("sync", False)).endswith(" initialize_cache() would save a second run 18.0 s of it.")
    assert "initialize_cache" not in text(("sync", True), ("sync", True))
    assert text(("sync", False), ("sync", False), kept=True).endswith(
        " The programs are kept, which saves a second run 20.0 s of it."
    )
    assert "a second run" not in text(("sync", False), ("sync", False), unkept="it checks values")


def test_ranks_add_up_and_share_the_whole() -> None:
    one, two = (two_phases() for _ in range(2))
    both, alone = (one.run() + two.run()).report(), one.report()
    assert [(a.what, a.share) for a in both.accounts] == [(a.what, pytest.approx(a.share)) for a in alone.accounts]
    assert sum(a.total_s for a in both.accounts) == pytest.approx(2 * alone.run.wall_s)


def test_findings_explain_no_more_compiling_than_they_cost() -> None:
    for story in (ragged(), training(), two_phases()):
        report = story.report()
        costs = sum(one.cost_s for one in report.findings if one.kind == "recompile")
        assert account(report, "compile").explained_s == pytest.approx(costs)


def length_s(run: Run) -> float:
    """Of all recordings in a log: a second header begins another one."""
    return sum(span.ns for span in run.settled().spans()) / 1e9


def check(report: Report, whole_s: float) -> None:
    for one in report.accounts:
        parts = one.explained_s, one.normal_s, one.unexplained_s
        assert min(parts) >= 0
        assert sum(parts) == pytest.approx(one.total_s, rel=1e-9, abs=1e-9)
        assert 0 < one.share <= 1
        assert one.text.endswith(".")
        assert math.isfinite(one.total_s)
        assert set(one.findings) <= {finding.id for finding in report.findings}
    total = sum(one.total_s for one in report.accounts)
    assert total <= whole_s * (1 + 1e-12) + 1e-7
    if any(one.what == "busy" for one in report.accounts):
        assert total == pytest.approx(whole_s, rel=1e-9, abs=1e-7)  # an account of less than a nanosecond is left out


@pytest.mark.parametrize("story", [training(), clean(), two_phases()], ids=["all", "clean", "phases"])
def test_parts_add_up(story: Story) -> None:
    report = story.report()
    check(report, report.run.wall_s)


@given(trainings())
def test_parts_add_up_in_any_training(events: list[AnyEvent]) -> None:
    run = Run().feed_all(events)
    check(run.report(), length_s(run))


@given(streams.map(ordered), streams.map(ordered))
def test_parts_add_up_in_any_streams_and_when_they_are_merged(events: list[AnyEvent], others: list[AnyEvent]) -> None:
    run, other = Run().feed_all(events), Run().feed_all(others)
    check((run + other).report(), length_s(run) + length_s(other))


def test_without_a_device_the_wait_for_data_has_its_own_account() -> None:
    story = Story()
    loader = story.line(25, "for x, y in loader:")
    for _ in range(10):
        with story.step():
            story.data(30, loader)
            story.spend(30)
    (data,) = story.report().accounts
    assert (data.what, data.total_s, data.share) == ("data", pytest.approx(0.3), pytest.approx(0.5))
    assert "train.py:25" in data.text


def test_imports_before_the_first_program_are_named_by_their_lines() -> None:
    story = Story()
    begin, imports, reads = story.now, story.line(2, "import transformers"), story.line(9, "data = load()")
    story.spend(5000)
    story.emit(Look(begin, 3000 * MS, imports, "import"))
    story.emit(Look(begin + 3000 * MS, 1500 * MS, reads, "python"))
    barrier = story.line(120, "xr.sync()")
    for _ in range(4):
        with story.step():
            story.trace(2)
            story.barrier(barrier, 10)
    story.finish()
    before = account(story.report(), "before")
    assert "3.00 s (54%) normal: importing modules, at train.py:2" in before.text
    assert "1.50 s (27%) normal: set-up, at train.py:9" in before.text
    assert before.unexplained_s == 0


def test_without_a_device_the_lines_that_ran_have_an_account() -> None:
    story = Story()
    begin, imports, trains = story.now, story.line(2, "import torch"), story.line(30, "loss.backward()")
    story.spend(10_000)
    story.emit(DynamoCompile(begin + 2000 * MS, 1000 * MS, "0/0", story.text("f"), stack=trains))
    story.emit(Look(begin, 2000 * MS, imports, "import"))
    story.emit(Look(begin + 3000 * MS, 6000 * MS, trains, "torch"))
    story.finish()
    report = story.report()
    assert account(report, "import").text.endswith("importing modules, normal: once in a process, at train.py:2.")
    running = account(report, "run")
    assert (running.normal_s, running.unexplained_s) == (pytest.approx(6.0), pytest.approx(1.0))
    assert "the program's own work, at train.py:30" in running.text
    assert sum(one.total_s for one in report.accounts) == pytest.approx(report.run.wall_s)


def test_what_the_decorator_imports_at_a_functions_head_is_no_run_of_it() -> None:
    """``@torch.compile`` imports Dynamo, at the line by which the compiled function is known."""
    story = Story()
    begin, head = story.now, story.line(49, "@torch.compile")
    story.spend(6000)
    story.emit(DynamoCompile(begin + 5000 * MS, 1000 * MS, "0/0", story.text("f"), stack=head, code=head))
    story.emit(Look(begin, 5000 * MS, head, "import"))
    story.finish()
    assert account(story.report(), "import").normal_s == pytest.approx(5.0)


@pytest.mark.parametrize(("trigger", "what"), [("dynamo", "torch.compile"), ("jit", "jax"), ("sync", "compile")])
@pytest.mark.parametrize("killed", [True, False])
def test_a_program_that_is_killed_while_it_compiles_spent_its_time_on_that(
    trigger: str, what: str, killed: bool
) -> None:
    """A time limit ends a job 80 s after it began to compile: what that was for is all that anybody wants to know."""
    story = Story()
    call = story.line(72, "pred = model(batch)")
    story.spend(500)
    story.emit(Compiling(t=story.now, ops=0, stack=call, trigger=trigger, phase="Inductor"))
    story.spend(80_000)
    story.emit(Counters(t=story.now, counts={}))
    if not killed:
        story.finish()  # no end of its own: that compilation failed
    told = [one for one in story.report().accounts if one.what == what]
    assert bool(told) is killed
    for one in told:
        assert one.total_s == pytest.approx(80)
        assert "one that had not ended yet" in one.reason
