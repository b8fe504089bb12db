"""What follows from a cause that is told is no finding, and what is meant is none: stories with known truth."""

from __future__ import annotations

from itertools import pairwise

import msgspec
from story import MS, Story

from tests.analysis.compiling import Compiling, shape
from xlaprof.events import (
    Block,
    Change,
    Compile,
    Difference,
    DynamoLimit,
    GraphBreak,
    GraphDiff,
    Guard,
    Operation,
    Recompile,
)


def test_a_view_whose_shape_follows_from_a_size_is_no_cause_of_its_own() -> None:
    story = Story()
    barrier = story.line(50, "xr.sync()")
    picked = story.line(20, "kept = rows[mask]", func="forward")
    viewed = story.line(31, "return kept.reshape(1, -1, 8)", func="forward")
    sizes = [40, 41, 44, 38, 47]
    for n, (old, new) in enumerate(pairwise(sizes), 1):
        with story.step():
            change = Change("size", str(old), str(new), "result of aten::nonzero", stack=picked, against=n - 1)
            story.barrier(barrier, 8, f"size {new}", change=change if n > 1 else None)
    with story.step():  # a size that was there before, in other company: only the view tells
        change = Change("argument", "[1, 44, 8]", "[1, 41, 8]", "size of aten::view", stack=viewed, against=2)
        story.barrier(barrier, 8, "again", change=change)
    (finding,) = story.findings("recompile")
    assert (finding.place.line, finding.count) == (20, 4)


def test_a_constant_that_is_none_of_the_special_numbers_is_told_as_it_is() -> None:
    story = Story()
    barrier = story.line(50, "xr.sync()")
    filled = story.line(20, "done = torch.full(size, ended)", func="forward")
    for n in range(8):
        with story.step():
            old, new = str(n % 2 == 0), str(n % 2 == 1)
            change = Change("scalar", old, new, "fill_value of aten::full", stack=filled, against=n)
            story.barrier(barrier, 8, f"graph {n}", change=change if n else None)
    (finding,) = story.findings("recompile")
    assert "ended (fill_value of aten::full) went from False to True" in finding.cause
    assert "and it is a constant of the graph: compiled" in finding.cause
    assert "special" not in finding.cause


def chosen(sizes: list[int]) -> Story:
    story = Story()
    barrier = story.line(50, "xr.sync()")
    moved = story.line(20, "x = batch.to(device)")
    for n, size in enumerate(sizes):
        with story.step():
            shapes = [f"f32[{one},6]" for one in (sizes[n - 1], size)]
            change = Change("shape", *shapes, "input of aten::mm", stack=moved, made=moved, moved=True, against=1)
            story.barrier(barrier, 8, f"size {size}", change=change if n and size != sizes[n - 1] else None, compile=90)
            story.spend(8)
    story.finish()
    return story


def test_a_smaller_batch_that_only_warmed_up_is_meant() -> None:
    assert chosen([16, 16] + [32] * 60).findings("recompile") == []


def test_a_smaller_batch_that_comes_again_and_again_is_told() -> None:
    assert chosen(([32] * 9 + [16]) * 4).findings("recompile"), "it is the last of each pass"
    assert chosen([16] + [32] * 30 + [16] + [32] * 30).findings("recompile"), "nothing says that it is meant"
    assert chosen([32, 16, 32, 16, 32] * 24).findings("recompile") == [], "two lengths that take turns are buckets"


def test_the_turn_in_which_what_grows_begins_is_no_path_of_its_own() -> None:
    """Tracks are joined scan by scan, from an empty tensor on that the first scan's graph makes."""
    story = Story()
    joined = story.line(30, "self.tracks = torch.cat([self.tracks, seen])", func="add", outer=(40,))
    barrier = story.line(41, "xr.sync()", loops=(39,))
    for _ in range(3):
        for scan in range(5):
            against = max(1, scan)
            if scan < 2:
                made = {"stack": joined, "made": joined, "expected": joined, "removed": 2, "against": against}
                change = Change("operation", "xlaprof.empty", "aten::cat", **made)
            else:
                old, new = f"f32[{6 * (scan - 1)},4]", f"f32[{6 * scan},4]"
                change = Change("shape", old, new, "input of aten::cat", stack=joined, made=joined, against=against)
            story.barrier(barrier, 8, f"scan {scan}", change=change if scan else None)
            story.spend(8)
    (finding,) = story.findings("recompile")
    assert (finding.place.line, finding.count) == (30, 4)
    assert "from f32[6,4] to f32[12,4]" in finding.cause
    assert "Dimension 0 grows from step to step" in finding.advice


def mode(old: str, new: str) -> Guard:
    return Guard("mode", "grad_mode", old, new, "GLOBAL_STATE changed: grad_mode")


def value(one: Compiling, old: str, new: str) -> Guard:
    made = one.story.line(15, "return self.heads[factor](x)", func="forward")
    return Guard("value", "factor", old, new, f"factor == {old}", stack=made)


def test_the_limit_is_hit_for_what_made_the_versions_not_for_what_changed_last() -> None:
    one = Compiling()
    evaluate = one.story.line(70, "score = fast(x)")
    one.compile("0/0")
    for n, (old, new) in enumerate(pairwise(range(10, 17)), 1):
        one.recompile(f"0/{n}", shape(old, new), against=f"0/{n - 1}")
    one.recompile("0/7", mode("True", "False"), stack=evaluate, against="0/6")
    guards = [mode("True", "False")]
    one.story.emit(
        Recompile(
            t=one.story.now, compile="0/8", guards=guards, versions=8, stack=evaluate, code=one.code, func=one.func
        )
    )
    one.story.emit(DynamoLimit(t=one.story.now, compile="0/8", func=one.func, code=one.code, stack=evaluate, value=8))
    one.compile("0/8", ms=1, ops=0, compiled=False, stack=evaluate)
    (finding,) = one.findings("recompile")
    assert finding.place.line == 40
    assert "The shape of x" in finding.cause
    assert "recompile_limit" in finding.cause
    assert "grad_mode" not in finding.cause


def test_two_functions_that_one_line_calls_hit_their_limits_for_one_cause() -> None:
    one = Compiling()
    functions = [("forward", one.code), ("backward", one.story.line(20, "def backward(x):", func="backward"))]
    for number, (name, code) in enumerate(functions):
        func = one.story.text(name)
        one.compile(f"{number}/0", code=code, func=func)
        for n in range(1, 8):
            one.recompile(f"{number}/{n}", shape(n + 1, n + 2), code=code, func=func, against=f"{number}/{n - 1}")
        of = {"compile": f"{number}/8", "func": func, "code": code, "stack": one.call}
        one.story.emit(Recompile(t=one.story.now, guards=[shape(9, 10)], versions=8, **of))
        one.story.emit(DynamoLimit(t=one.story.now, value=8, **of))
        one.compile(f"{number}/8", ms=1, ops=0, compiled=False, code=code, func=func)
    (finding,) = one.findings("recompile")
    assert (finding.place.line, finding.count) == (40, 14)
    assert "forward and backward were compiled again 7 times each" in finding.cause
    assert "recompile_limit = 8 was hit" in finding.cause


def test_few_values_that_come_back_in_another_mode_are_meant() -> None:
    one = Compiling()
    evaluate = one.story.line(70, "score = fast(x)")
    one.compile("0/0", ms=500)
    one.recompile("0/1", value(one, "2", "4"), against="0/0")
    one.recompile("0/2", mode("True", "False"), stack=evaluate, against="0/0")
    one.recompile("0/3", value(one, "2", "4"), stack=evaluate, against="0/2")
    one.story.spend(1000)
    one.story.finish()
    assert one.findings("recompile") == []
    account = next(one for one in one.story.report().accounts if one.what == "torch.compile")
    assert account.unexplained_s == 0


def test_a_value_that_changes_once_and_never_comes_back_is_told() -> None:
    one = Compiling()
    one.compile("0/0", ms=500)
    one.recompile("0/1", value(one, "2", "4"), against="0/0")
    one.story.finish()
    (finding,) = one.findings("recompile")
    assert "factor" in finding.cause


def test_a_librarys_function_that_a_break_made_a_graph_of_its_own_belongs_to_the_break() -> None:
    one = Compiling()
    pool = {
        "code": one.story.line(7, "def pool(x, how):", func="pool", file="/usr/lib/site-packages/graphs/pool.py"),
        "func": one.story.text("pool"),
    }
    line = one.story.line(22, "return pool(x, 'mean') + pool(x, 'max')", func="forward")
    for name, fields in (("0/0", {}), ("1/0", pool)):
        event = GraphBreak(t=one.story.now, reason="item() needs the value", stack=line, compile=name, func=one.func)
        one.story.emit(event)
        one.compile(name, compiled=True, restarted=20 * MS, **fields)
    one.recompile("1/1", Guard("value", "how", "'mean'", "'max'", "how == 'mean'"), against="1/0", **pool)
    (finding,) = one.findings()
    assert finding.kind == "graph_break"
    assert "a graph of its own only for that, was compiled again once for how" in finding.cause


def test_what_a_first_step_makes_is_not_told_as_what_stands_before_the_loop() -> None:
    story = Story()
    before = story.line(10, "total = torch.zeros(())", func="train")
    barrier = story.line(30, "xr.sync()", loops=(20,))
    noise = story.line(25, "noise = torch.randn_like(x)", loops=(20,))
    zeros, drawn = Operation("aten::zeros", before, ""), Operation("aten::randn_like", noise, "")
    block = Block([zeros], [drawn], removed=900, added=700, roles={"": 1600})
    other = Difference("operation", "aten::zeros", "aten::randn_like", expected=zeros, came=drawn, block=block)
    change = GraphDiff(differences=[other], added=700, removed=900, roles={"": 1600}, against=1)
    for n in range(12):
        with story.step():
            story.barrier(barrier, 8, "first" if not n else "others", change=change if n == 1 else None, compile=5000)
    story.finish()
    story.events = [
        msgspec.structs.replace(one, inputs=20 if one.graph == "first" else 60) if isinstance(one, Compile) else one
        for one in story.events
    ]
    (text,) = [one.text for one in story.report().accounts if one.what == "compile"]
    assert "as an optimizer's state, is kept: 40 more inputs" in text
    assert "recorded before it" not in text


def numbers(*, library: bool, name: str = "") -> Story:
    story = Story()
    below = (("/venv/lib/python3.11/site-packages/samplers/step.py", 88, "step", "out = (1 - a) ** 0.5 * x", 0),)
    barrier = story.line(50, "xr.sync()")
    line = story.line(31, "x = sampler.step(x)", library=below if library else ())
    change = Change("scalar", "0.016", "0.0", "other of aten::mul", stack=line, name=name, against=1)
    for n in range(20):
        with story.step():
            story.barrier(barrier, 8, "last" if n == 19 else "others", change=change if n == 19 else None)
            story.spend(8)
    story.finish()
    return story


def test_a_number_that_a_library_computes_once_is_its_own() -> None:
    assert numbers(library=True).findings("recompile") == []
    (account,) = [one for one in numbers(library=True).report().accounts if one.what == "compile"]
    assert account.unexplained_s == 0
    assert len(numbers(library=False).findings("recompile")) == 1
    (finding,) = numbers(library=True, name="lr").findings("recompile")
    assert "lr" in finding.cause, "a setting of the program's, wherever it is used"


def test_numbers_of_one_line_that_meet_each_other_and_one_are_one_finding() -> None:
    """Weights of losses go from 0.9 to 0.6 to 1.0: equal to another, then special. One tensor serves all of them."""
    story = Story()
    line, barrier = story.line(81, "loss = sum(weights[t] * l for t, l in losses.items())"), story.line(90, "xr.sync()")
    alone, shared = [("0.9", "0.9"), ("0.9", "1.0"), ("0.6", "0.0")], [("0.9", "0.6"), ("0.6", "0.3")]
    went = [*((*one, "") for one in alone), *((*one, "shared") for one in shared)]
    for n in range(20):
        old, new, role = went[n % 5]
        change = Change("scalar", old, new, "other of aten::mul", stack=line, role=role, against=1)
        with story.step():
            story.barrier(barrier, 8, f"weights {n % 5}", 500, change if 0 < n < 5 else None)
            story.spend(8)
    (finding,) = story.findings("recompile")
    assert (finding.count, finding.place.line) == (4, 81)
    assert "numbers that are equal are one input of the graph" in finding.cause
    assert finding.advice.startswith("Pass the two numbers as 1-element tensors")
