"""Recompilations that are no mistake, or change for good: warm-up, stages of a training, loops that grow."""

from __future__ import annotations

import msgspec
import pytest
from story import Story

from xlaprof.analysis.diagnosis import SAME
from xlaprof.analysis.model import Finding
from xlaprof.events import Block, Change, Difference, GraphDiff, Operation


def test_the_second_step_of_an_optimizer_needs_its_graph_whatever_else_is_new_in_it() -> None:
    """Its first step has a batch of 46, its second one of 44; each further size is the sizes' fault."""
    story = Story()
    barrier, step, x = story.line(40, "xr.sync()"), story.line(39, "opt.step()"), story.line(30, "x = next(batches)")
    for n, rows in enumerate((46, 44, 47, 44, 47, 45)):
        shape = Difference("shape", f"f32[{46 if n == 1 else 44}]", f"f32[{rows}]", made=x, moved=True)
        zeros = Operation("aten::zeros_like", step, "state")
        block = Block(old=[zeros], removed=4, roles={"state": 4}, stack=step)
        state = Difference("operation", "aten::zeros_like", "aten::mul_", expected=zeros, block=block)
        diff = GraphDiff(against=min(n, 2), differences=[shape])
        if n == 1:
            diff = GraphDiff(against=1, removed=4, roles=["state"], differences=[shape, state])
        with story.step():
            story.trace(1)
            story.barrier(barrier, 8, f"{rows} rows", compile=100, change=diff if n else None)
            story.spend(8)
    story.finish()
    (finding,) = story.findings("recompile")
    assert (finding.count, finding.cost_s) == (3, pytest.approx(0.2))
    assert [size for size, _ in finding.values] == ["46", "44", "47", "45"]
    compiling = next(one.text for one in story.report().accounts if one.what == "compile")
    assert "1 graph compiled again once the optimizer has its state" in compiling


def test_the_second_step_of_an_optimizer_that_began_late_is_warm_up() -> None:
    story = Story()
    line, barrier = story.line(36, "opt_g.step()"), story.line(28, "xr.sync()")
    came = Change("operation", "aten::t", "aten::neg", "the next operation", stack=line, added=65, against=1)
    made = Change(
        "operation",
        "aten::zeros_like",
        "aten::mul_",
        "the next operation",
        stack=line,
        role="state",
        removed=4,
        against=2,
    )
    for n in range(24):
        with story.step():
            graph = "critic" if n % 6 != 5 else "generator's first" if n == 5 else "both"
            change = {"generator's first": came, "both": made}.get(graph)
            story.barrier(barrier, 8, graph, change=change)
            story.spend(8)
    (finding,) = story.findings()
    assert (finding.kind, finding.count) == ("recompile", 1)
    assert "65 operations from aten::neg on" in finding.cause


def test_what_the_first_graph_lacks_is_warm_up_for_a_read_before_the_barrier_too() -> None:
    """Speculative decoding: the first round has no slice of the round before, neither up to the read nor at the end."""
    story = Story()
    barrier, read = story.line(40, "xm.mark_step()", loops=(30,)), story.line(37, "n = int(agrees.sum())", loops=(30,))
    line = story.line(39, "last = wanted[accepted:accepted + 1]", loops=(30,))
    for n in range(9):
        sliced = Change("operation", "aten::embedding", "aten::slice", "the next operation", line, line, added=1)
        story.trace(1)
        story.compile(f"read {min(n, 1)}", 80, read, sliced if n == 1 else None, "read", again=16)
        story.execute(f"read {min(n, 1)}", 2, read, "read")
        story.read(read)
        story.barrier(barrier, 4, f"step {min(n, 1)}", 90, change=sliced if n == 1 else None)
    story.finish()
    (finding,) = story.findings()
    assert (finding.kind, finding.place.line) == ("transfer", 37)
    assert "2 graphs of its own that took 160 ms to compile" in finding.cause


def stages(order: str, role: str = "backward", condition: str = "") -> Story:
    """Steps of two buckets, a and b; the second stage of the training are A and B."""
    story = Story()
    barrier, line = story.line(68, "torch_xla.sync()"), story.line(65, "loss.backward()")
    deciding = story.line(64, condition) if condition else 0
    bucket = Change("shape", "s64[8,8]", "s64[8,16]", "input of aten::embedding", made=line, moved=True, against=1)
    numbers: dict[str, int] = {}
    for graph in order:
        old = numbers.get(graph.lower(), 0)
        stage = Change("operation", "aten::t", "aten::mul", stack=line, role=role, condition=deciding, added=4)
        change = bucket if graph == "b" else msgspec.structs.replace(stage, against=old) if graph.isupper() else None
        with story.step():
            story.barrier(barrier, 8, graph, change=change if graph not in numbers else None)
            story.spend(8)
        numbers.setdefault(graph, len(numbers) + 1)
    story.finish()
    return story


def test_another_stage_of_a_training_is_worth_its_graphs_in_every_bucket() -> None:
    assert stages("abbaab" * 4 + "ABBAAB" * 4).findings("recompile") == []
    assert stages("a" * 24 + "A" * 24, "", "if step >= 24:").findings("recompile") == []
    for order in ("abbaab" * 2 + "ABBAAB" * 4, "abbaab" * 4 + "ABBAAB" * 4 + "a"):
        assert stages(order).findings("recompile"), "too short, or not for good"


def test_work_that_comes_at_regular_intervals_of_a_long_run_is_meant() -> None:
    """A penalty in each fourth step, or for each tenth time cleared sums: two graphs, which are compiled once each."""
    penalty = "if step % 4 == 3:"
    for long in ("aaaA" * 50, "aaaaaaaaaA" * 10):
        assert stages(long, "", penalty).findings("recompile") == []
    for few, why in (
        ("aaaA" * 12, "too short"),
        ("a" * 99 + "A" * 9, "seldom"),
        ("aAaaaaaAAaaaAaAaaaaaaaaA" * 9, "irregular"),
    ):
        assert stages(few, "", penalty).findings("recompile"), why


def carried(line: int, loops: tuple[int, ...] = (30,), condition: str = "") -> Story:
    """In each pass of three, all steps but the first begin with what ``line`` computes; the barrier is line 40."""
    story = Story()
    barrier = story.line(40, "xr.sync()", loops=(30,))
    norms = story.line(line, "norms = torch.stack([p.grad.norm() for p in parameters])", loops=loops)
    decides = story.line(line - 1, condition) if condition else 0
    change = Change(
        "operation", "aten::mul", "aten::norm", "the next operation", norms, position=0, made=norms, added=9, against=1,
        condition=decides,
    )  # fmt: skip
    for step in range(24):
        with story.step():
            more = step % 8 > 0
            story.barrier(barrier, 8, f"graph {more}", 500, change if step == 1 else None)
            story.spend(8)
    return story


def test_what_a_line_computes_behind_the_barrier_is_carried_into_the_next_steps_graph() -> None:
    (finding,) = carried(44).findings("recompile")
    assert (finding.place.line, finding.count) == (44, 1)
    assert finding.cause.startswith("What this line computes begins the graph of the step that follows, 9 operations")
    assert "or compute it before the barrier" in finding.advice
    for other in (carried(36), carried(44, loops=())):
        (finding,) = other.findings("recompile")
        assert "begins the graph" not in finding.cause, "before the barrier, or outside of its loop"


def test_a_copy_that_is_pending_when_the_loop_begins_has_its_first_step_compiled_for_itself() -> None:
    """Shadows of the weights: in the first graph they are the weights, for no barrier came between."""

    def shadows(*, added: int = 0, back: bool = False) -> list[Finding]:
        story = Story()
        barrier, line = story.line(40, "xr.sync()", loops=(30,)), story.line(36, "shadow.lerp_(p, 0.02)", loops=(30,))
        copied = Change("aliasing", SAME, "another tensor", "self of aten::lerp_", line, added=added, against=1)
        for step in range(24):
            with story.step():
                first = not step or (back and step % 8 == 0)
                story.barrier(barrier, 8, "first" if first else "later", 6_000, copied if step == 1 else None)
                story.spend(8)
        return story.findings("recompile")

    (finding,) = shadows()
    assert (finding.place.line, finding.count, finding.cost_s) == (36, 1, 6.0)
    assert "In the first graph of the loop at line 30 the self of aten::lerp_ is one tensor with what" in finding.cause
    assert "before the loop at line 30" in finding.advice
    assert shadows(added=2) == shadows(back=True) == [], "other operations as well, or a sum that each epoch begins"


def test_work_that_changed_once_is_told_with_the_step_and_not_as_a_habit() -> None:
    (finding,) = stages("a" * 15 + "A" * 25, "").findings("recompile")
    assert "Another path is taken from step 15 on" in finding.cause
    assert "every" not in finding.cause
    assert "move the barrier" not in finding.advice, "it would save no graph"
    (finding,) = stages("aAAAAaAAA" * 3, "").findings("recompile")
    assert "Another path is taken: 4 operations" in finding.cause, "the other one is the rarer"


def test_a_loop_that_has_a_pass_more_each_time_is_told_as_one_that_never_ends() -> None:
    story = Story()
    head, barrier = story.line(30, "for learner in self.learners:"), story.line(39, "xr.sync()")
    for n in range(20):
        passes, began = n // 4, n % 4 == 0
        change = Change(
            "operation", f"{passes - 1} passes", f"{passes} passes", "the loop", head, head, role="loop", against=passes
        )
        with story.step():
            story.barrier(barrier, 8, f"{passes} passes", change=change if n and began else None)
            story.spend(8)
    (finding,) = story.findings("recompile")
    assert "has one pass more each time" in finding.cause
    assert "(self.learners grows)" in finding.cause
    assert finding.advice.startswith("End every pass with a barrier")


@pytest.mark.parametrize("ends", ["xr.sync()", "for x, y in loader:"])
@pytest.mark.parametrize("state", [False, True], ids=["SGD", "Adam"])
@pytest.mark.parametrize("at", [3, 0])
def test_gradients_that_are_added_up_need_two_graphs(ends: str, state: bool, at: int) -> None:
    """Four batches of an optimizer's step; it comes with the last or the first of them. Adam makes its state once."""
    story = accumulating([n % 4 == at for n in range(24)], ends, state)
    assert story.findings("recompile") == []


def test_an_optimizer_that_steps_now_and_then_is_another_path() -> None:
    for turns in ([n in (3, 4, 9, 15, 16, 17, 22, 23) for n in range(30)], [n in (5, 9) for n in range(24)]):
        (finding,) = accumulating(turns, "xr.sync()", False).findings("recompile")
        assert "line 38 (`if n % 4 == 3:`) decides" in finding.cause


def accumulating(steps: list[bool], ends: str, state: bool) -> Story:
    story = Story()
    barrier, step = story.line(34, ends), story.line(39, "opt.step()")
    came = Change(
        "operation", "barrier", "aten::lerp_", "the next operation", step, barrier, 30, added=36, against=1,
        role="optimizer", condition=story.line(38, "if n % 4 == 3:"),
    )  # fmt: skip
    kept = Change("operation", "aten::zeros_like", "aten::lerp_", stack=step, role="state", removed=8, against=2)
    made = 0
    for turn in steps:
        graph = f"step {min(made, 1) if state else 0}" if turn else "add"
        with story.step():
            story.trace(2)
            story.barrier(barrier, 8, graph, compile=400, change=kept if graph == "step 1" else came)
            story.spend(8)
        made += turn
    story.finish()
    return story
