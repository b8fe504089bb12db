"""Runs held to budgets: each limit counts what it says, exactly at its edge, and names the line that used it up."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from story import Story, clean

from analysis.test_findings import ragged, reading, shape
from xlaprof.analysis.gates.budget import Used, Verdict, judge, lines
from xlaprof.analysis.gates.limits import BudgetError, budget
from xlaprof.events import AnyEvent, Change, Device, Dropped, Event, GraphBreak, Guard, Live, Recompile, StepDigest


def held(story: Story, **limits: object) -> Verdict:
    def read() -> Iterable[AnyEvent]:
        return iter(story.events)  # type: ignore[arg-type]

    return judge(read, budget(limits), "run.log")


def used(story: Story, **limits: object) -> Used:
    (one,) = held(story, **limits).used
    return one


def late(steps: int = 20, at: int = 15, unnamed: bool = False) -> Story:
    """A shape changes in step ``at``; an evaluation with a graph of its own follows."""
    story = Story()
    barrier, upload = story.line(39, "xr.sync()"), story.line(34, "x = x.to(device)")
    for number in range(steps):
        change = shape("f32[8,4]", "f32[5,4]", upload) if number == at else None
        graph = "odd" if number == at else "step"
        if unnamed:
            story.trace(2)
            story.barrier(barrier, 10, graph, change=change)
            story.spend(5)
        else:
            with story.step():
                story.trace(2)
                story.barrier(barrier, 10, graph, change=change)
                story.spend(5)
    story.barrier(story.line(60, "xm.mark_step()", func="evaluate"), 10, "evaluation")
    return story


# -- recompilations


def test_recompiles_are_those_that_the_report_reports() -> None:
    assert (used(ragged(), max_recompiles=0).value, used(ragged(), max_recompiles=0).broken) == (1, True)
    assert not used(ragged(), max_recompiles=1).broken
    assert used(clean(), max_recompiles=0).value == 0


def test_what_broke_the_limit_is_reported_as_the_finding_says_it() -> None:
    (offence,) = used(ragged(), max_recompiles=0).offences
    (finding,) = ragged().findings("recompile")
    assert (offence.kind, offence.id, offence.place) == ("recompile", finding.id, finding.place)
    assert (offence.cause, offence.advice) == (finding.cause, finding.advice)


@pytest.mark.parametrize("unnamed", [False, True])
def test_after_a_step_every_compile_at_a_barrier_that_had_one_counts(unnamed: bool) -> None:
    for after, count in ((5, 1), (14, 1), (15, 0), (17, 0)):
        one = used(late(unnamed=unnamed), max_recompiles=0, after_step=after)
        assert (one.value, one.broken) == (count, bool(count)), after
    (offence,) = used(late(unnamed=unnamed), max_recompiles=0, after_step=10).offences
    assert (offence.kind, offence.place.line) == ("recompile", 34)


@pytest.mark.parametrize("unnamed", [False, True])
def test_compiles_are_all_of_them_also_the_first_of_a_barrier(unnamed: bool) -> None:
    story = late(unnamed=unnamed)
    assert used(story, max_compiles=0).value == 3
    one = used(story, max_compiles=0, after_step=16)
    assert one.value == 1
    assert [offence.place.line for offence in one.offences] == [60]
    assert used(story, max_compiles=0, after_step=10).value == 2


def test_the_steps_of_a_training_count_not_the_barriers_of_what_it_draws_in_between() -> None:
    story = Story()
    train, draw = story.line(20, "xr.sync()", "main", loops=(12,)), story.line(7, "xr.sync()", "draw", outer=(22,))
    upload = story.line(14, "x = x.to(device)", "main", loops=(12,))
    for n in range(12):
        change = shape("f32[8,4]", "f32[5,4]", upload) if n == 8 else None
        story.trace(4)
        story.barrier(train, 5, "odd" if n == 8 else "step", change=change, trains=True)
        for _ in range(10):
            story.trace(1)
            story.barrier(draw, 2, "sample")
    assert [used(story, max_compiles=0, after_step=n).value for n in (6, 7, 8)] == [1, 1, 0]


def test_a_compile_that_no_finding_reports_counts_after_warm_up_all_the_same() -> None:
    """State made in an optimizer's second step is warm-up to the report; here step 0 was said to be all of it."""
    story = Story()
    barrier, opt = story.line(34, "xr.sync()"), story.line(32, "opt.step()")
    for n in range(12):
        with story.step():
            change = Change("operation", "aten::zeros_like", "aten::mul", stack=opt, code_seen=False)
            story.barrier(barrier, 10, "first" if not n else "later", change=change if n else None)
            story.spend(9)
    assert story.findings() == []
    assert used(story, max_recompiles=0).value == 0
    one = used(story, max_recompiles=0, after_step=0)
    assert one.value == 1
    (offence,) = one.offences
    assert (offence.id, offence.place.line) == ("", 32)
    assert "compiled once (500 ms), first in step 1: operation aten::zeros_like -> aten::mul" in offence.cause
    assert used(story, max_recompiles=0, after_step=1).value == 0


def test_compile_time_is_the_sum() -> None:
    one = used(ragged(), max_compile_time="999ms")
    assert one.value == pytest.approx(1.0)
    assert one.broken
    assert not used(ragged(), max_compile_time=1.0).broken
    assert used(ragged(), max_compile_time=0, after_step=5).value == pytest.approx(0.5)


# -- transfers


def test_transfers_are_counted_in_steps_and_per_step() -> None:
    story = reading()
    one = used(story, max_transfers_per_step=0)
    assert one.broken
    assert one.value == pytest.approx(sum(tally.in_steps for tally in story.run().reads.values()) / _steps(story))
    assert not used(story, max_transfers_per_step=one.value).broken
    assert {offence.kind for offence in one.offences} == {"transfer"}


def test_the_read_after_the_loop_is_none() -> None:
    assert used(clean(), max_transfers_per_step=0).value == 0


def test_rare_reads_that_are_no_finding_count_and_are_named() -> None:
    story = Story()
    barrier, line = story.line(20, "xr.sync()"), story.line(22, "print(loss.item())")
    for n in range(50):
        with story.step():
            story.trace(2)
            story.barrier(barrier, device=10)
            story.spend(9.5)
            if n in (20, 40):
                story.spend(10)
                story.read(line)
    assert story.findings("transfer") == []
    one = used(story, max_transfers_per_step=0)
    assert one.value == pytest.approx(2 / 50)
    (offence,) = one.offences
    assert (offence.id, offence.place.line, offence.count) == ("", 22, 2)
    assert "read from the device twice (aten::_local_scalar_dense), in 50 steps" in offence.cause
    assert used(story, max_transfers_per_step=0, after_step=30).value == pytest.approx(1 / 19)
    assert not used(story, max_transfers_per_step=0, after_step=40).broken
    assert not used(story, max_transfers_per_step=0.04).broken


def test_reads_between_barriers_count_where_steps_have_no_names() -> None:
    story = Story()
    barrier, line = story.line(20, "xr.sync()"), story.line(22, "print(loss.item())")
    for _ in range(10):
        story.trace(2)
        story.read(line)
        story.barrier(barrier, device=10)
    assert used(story, max_transfers_per_step=0).value == pytest.approx(0.9)  # before the first barrier is set-up
    assert used(story, max_transfers_per_step=0, after_step=3).value == 1.0


def test_reads_of_digested_steps_count() -> None:
    story = clean(10)
    at, op = story.line(22, "loss.item()"), story.text("aten::_local_scalar_dense")
    name = story.text("train")
    for n in range(10, 20):
        story.spend(20)
        reads = {f"{at}:{op}": [1, 1000, 1000]}
        story.emit(StepDigest(name=name, num=n, t=story.now - 20_000_000, dur=20_000_000, reads=reads))
    assert used(story, max_transfers_per_step=0).value == pytest.approx(0.5)
    assert used(story, max_transfers_per_step=0, after_step=14).value == 1.0


def test_the_reads_of_a_fallback_are_its_own() -> None:
    story = Story()
    barrier, eig = story.line(20, "xr.sync()"), story.line(18, "torch.linalg.eigvals(w)")
    for _ in range(5):
        with story.step():
            story.fallback(eig, "aten::linalg_eig", 3)
            story.barrier(barrier, 5)
    assert used(story, max_transfers_per_step=0).value == 0
    one = used(story, no_fallback=True)
    assert (one.value, one.broken, [offence.place.line for offence in one.offences]) == (5, True, [18])
    assert used(story, no_fallback=True, after_step=2).value == 2
    assert not used(clean(), no_fallback=True).broken


# -- graph breaks, idle, step time, findings


def test_graph_breaks() -> None:
    story = clean(4)
    at = story.line(9, "print(x)")
    for _ in range(3):
        story.breaks("print", at)
    one = used(story, max_graph_breaks=2)
    assert (one.value, one.broken, [offence.place.line for offence in one.offences]) == (3, True, [9])
    assert not used(story, max_graph_breaks=3).broken


def test_breaks_by_design_are_none() -> None:
    story = clean(4)
    story.emit(GraphBreak(t=story.now, reason="backward", stack=story.line(9, "loss.backward()"), by_design=True))
    assert used(story, max_graph_breaks=0).value == 0


def test_what_torch_compile_compiled_again_counts() -> None:
    story = clean(10)
    line = story.line(9, "return x * self.k")
    guard = Guard(kind="value", subject="self.k", old="2", new="3", stack=line)
    for fresh in (False, True):
        event = Recompile(t=story.now, compile="0/1", func=story.text("forward"), guards=[guard], fresh=fresh)
        story.emit(event)
    one = used(story, max_recompiles=0, after_step=3)
    assert (one.value, one.broken) == (1, True)
    (offence,) = one.offences
    assert offence.place.line == 9
    assert "self.k" in offence.cause


def test_memory_is_the_most_that_was_read() -> None:
    story = Story()
    barrier = story.line(20, "xr.sync()")
    for n in range(10):
        with story.step():
            story.barrier(barrier, 5, compile=1)
            story.emit(Live(t=story.now, tensors=3, bytes=2**20 * (5 if n == 2 else 3)))
            story.spend(1)
    assert used(story, max_memory="4MiB").value == 5 * 2**20
    assert used(story, max_memory="4MiB").broken
    assert used(story, max_memory="4MiB", after_step=5).text == "at most 3 MiB in 4 readings, 4 MiB allowed"
    with pytest.raises(BudgetError, match="holds no figures of memory"):
        held(clean(), max_memory="1GB")


def test_idle_is_that_of_the_report() -> None:
    ratio = reading().report().idle.idle_ratio
    assert used(reading(), max_idle=0).value == pytest.approx(ratio)
    assert not used(reading(), max_idle=ratio).broken
    warm = used(ragged(), max_idle="25%", after_step=7)
    assert warm.value < used(ragged(), max_idle="25%").value  # without the compiles
    assert not warm.broken


def test_the_step_time_is_the_median() -> None:
    median = clean().report().steps[0].median_s
    assert used(clean(), max_step_time=median / 2).broken
    assert not used(clean(), max_step_time=median).broken


def test_no_findings_from_a_severity_on_and_but_for_those_ignored() -> None:
    (finding,) = ragged().findings()
    assert finding.severity == "high"
    assert used(ragged(), no_findings=True).broken
    assert used(ragged(), no_findings="high").broken
    assert not used(ragged(), no_findings=True, ignore=["recompile"]).broken
    assert not used(ragged(), no_findings=True, ignore=[finding.id]).broken
    assert used(ragged(), no_findings=True, ignore=["transfer"]).broken
    assert not used(clean(), no_findings=True).broken


# -- what cannot be shown


@pytest.mark.parametrize("name", ["max_transfers_per_step", "max_step_time", "max_idle"])
def test_what_an_empty_recording_cannot_say_is_an_error_not_a_pass(name: str) -> None:
    with pytest.raises(BudgetError, match=f"run.log .*{name} cannot be checked"):
        held(Story(), **{name: 1})


def test_steps_without_an_xla_device_do_not_show_that_nothing_was_read() -> None:
    """A loop of JAX or torch.compile may read a value in every step: no event tells."""
    story = Story()
    for _ in range(5):
        with story.step():
            story.spend(3)
    with pytest.raises(BudgetError, match="holds nothing of an xla device, so max_transfers_per_step cannot"):
        held(story, max_transfers_per_step=0)
    story.emit(Device(t=story.now, platform="cpu", kind="cpu"))
    assert used(story, max_transfers_per_step=0).value == 0


def test_nothing_after_the_warm_up_is_an_error_not_a_pass() -> None:
    with pytest.raises(BudgetError, match=r"no step after 19 \(the last one is 19\): nothing to check"):
        held(clean(20), max_recompiles=0, after_step=19)
    assert held(clean(20), max_recompiles=0, after_step=18).steps == 1
    with pytest.raises(BudgetError, match="no step after 30"):
        held(late(unnamed=True), max_recompiles=0, after_step=30)
    with pytest.raises(BudgetError, match="neither named steps nor barriers"):
        held(Story(), max_recompiles=0, after_step=3)


def dropped(story: Story, why: str) -> Story:
    story.emit(Dropped(t=story.now, count=7, why=why))
    return story


def test_what_makes_the_figures_uncertain_is_said() -> None:
    story = dropped(clean(), "names")  # the events are there
    assert held(story, max_recompiles=0).warnings == (
        "7 events missing (names)",
        "no end of the recording: the program still runs, or was killed",
    )
    story.finish(error="ValueError")
    assert held(story, max_recompiles=0).warnings[1] == "the program ended with ValueError"


@pytest.mark.parametrize("why", ["disk", "queue", "encode", "deleted", "truncated", "torch.compile"])
def test_a_budget_that_is_kept_by_what_is_left_of_a_recording_is_not_kept(why: str) -> None:
    with pytest.raises(BudgetError, match=r"^run.log lacks 7 events .* --allow-dropped"):
        held(dropped(clean(), why), max_recompiles=0)
    assert held(dropped(clean(), why), max_recompiles=0, allow_dropped=True).kept
    assert not held(dropped(ragged(), why), max_recompiles=0).kept  # what there is breaks it


# -- the words


def test_a_line_that_broke_two_limits_is_explained_once() -> None:
    verdict = held(ragged(), max_recompiles=0, no_findings=True)
    shown = lines([verdict])
    assert sum("Fix:" in line for line in shown) == 1
    assert shown[0] == "max_recompiles: 1 recompilation, 0 allowed"
    assert any("see above" in line for line in shown)


def test_ranks_that_break_the_same_limit_at_the_same_line_are_reported_together() -> None:
    one, two, three = (
        held(ragged(), max_recompiles=0),
        held(ragged(), max_recompiles=0),
        held(clean(), max_recompiles=0),
    )
    shown = lines([one, two, three])
    assert shown[0] == "max_recompiles, broken by 2 of 3"
    assert sum("Fix:" in line for line in shown) == 1


def test_a_kept_budget_has_nothing_to_tell() -> None:
    verdict = held(clean(), max_recompiles=0, no_findings=True)
    assert verdict.kept
    assert lines([verdict]) == []


def test_names_that_hurt_stay_on_their_line() -> None:
    story = Story(file="we\n\x1b[31mird.py")
    barrier, eig = story.line(2, "x\r\n"), story.line(3, "y\x07")
    for _ in range(10):
        with story.step():
            story.fallback(eig, "aten::[/]", 3)
            story.barrier(barrier, 5, compile=1)
    assert all(line.isprintable() for line in lines([held(story, no_fallback=True)]))


def _steps(story: Story) -> int:
    return sum(stat.count for stat in story.report().steps)


def test_events_in_any_order_are_judged_without_a_crash() -> None:
    events: list[Event] = list(reversed(late().events))
    for after in (None, 3):
        limits = {"max_compiles": 100, **({"after_step": after} if after is not None else {})}
        judge(lambda: iter(events), budget(limits), "run.log")  # type: ignore[arg-type, return-value]
