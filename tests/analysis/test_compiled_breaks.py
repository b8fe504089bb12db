"""Graph breaks of ``torch.compile`` from planted events: what is one, what is not, and what each costs."""

from __future__ import annotations

import pytest
from story import MS

from xlaprof.events import GraphBreak, Guard

from .compiling import Compiling, shape


def test_a_break_costs_for_each_graph_behind_it_what_the_cheapest_took() -> None:
    compiling = Compiling()
    compiling.broke("0/0", 21, "the branch depends on the value of a tensor")
    compiling.compile("0/0", 400)
    place = compiling.story.line(21, "print(x)", func="forward")
    compiling.compile("1/0", 90, resumed=place)  # the one side of the branch, which XLA compiles too
    compiling.story.barrier(compiling.call, device=1, graph="one side", compile=30, dispatch=0, trigger="dynamo")
    compiling.compile("2/0", 80, resumed=place)  # and the other
    compiling.story.barrier(compiling.call, device=1, graph="the other", compile=20, dispatch=0, trigger="dynamo")
    compiling.compile("3/0", 10, ops=0, resumed=place)  # nothing was left to capture
    (finding,) = compiling.findings()
    assert (finding.kind, finding.place.line) == ("graph_break", 21)
    assert finding.cost_s == pytest.approx(2 * (0.08 + 0.02))
    assert any("2 graphs more than one; the cheapest took 100 ms" in line for line in finding.evidence)


def test_a_break_is_charged_with_what_its_value_recompiles() -> None:
    compiling = Compiling()
    compiling.broke("0/0", 21, "item() needs the value", gb="GB0124", hint="Keep it a tensor.")
    compiling.compile("0/0", 100, restarted=40 * MS)
    place = compiling.story.line(21, "print(x)", func="forward")
    compiling.compile("1/0", resumed=place)
    compiling.recompile("1/1", Guard("value", "value", "1.5", "2.5", handed=True), ms=60, resumed=place)
    (finding,) = compiling.findings()
    assert (finding.kind, finding.place.line, finding.count) == ("graph_break", 21, 1)
    # tracing thrown away, one graph more, as cheap as the one before the break, and what follows for another value
    assert finding.cost_s == pytest.approx(0.04 + 0.06 + 0.06)
    assert finding.advice == "Keep it a tensor."
    assert "2 graphs instead of one" in finding.cause
    assert "1.5, 2.5" in finding.cause


def test_what_a_break_at_the_head_leaves_behind_is_compiled_in_any_case() -> None:
    """Nothing was captured before it: what follows is the one graph that there would be without."""
    compiling = Compiling()
    compiling.broke("0/0", 21, "item() needs the value of the tensor", gb="GB0124", hint="Keep it a tensor.")
    compiling.compile("0/0", 100, ops=0, restarted=40 * MS)
    place = compiling.story.line(21, "print(x)", func="forward")
    compiling.compile("1/0", 5000, resumed=place)
    (finding,) = compiling.findings()
    assert finding.cost_s == pytest.approx(0.04)


@pytest.mark.parametrize(
    ("read", "uses", "words"),
    [
        (
            "n = int(lengths.max())",
            "keep = torch.arange(n, device=x.device) < lengths[:, None]",
            "Take the largest size",
        ),
        ("most = lengths.max().item()", "h = self.cell(x[:, :most])", "Take the largest size"),
        ("x = x[:, : lengths.max().item()]", "x = self.lift(x)", "Take the largest size"),
        ("passes = int(depth.max())", "for _ in range(passes):", "Run the largest number of passes"),
        ("worst = loss.max().item()", "scaled = loss / worst", "Keep it a tensor."),
    ],
)
def test_a_number_that_sizes_what_follows_is_made_before_the_call(read: str, uses: str, words: str) -> None:
    compiling = Compiling()
    line = compiling.story.line(21, read, func="forward")
    after = compiling.story.line(22, uses, func="forward")
    compiling.story.emit(
        GraphBreak(
            t=compiling.story.now,
            reason="item() needs the value of the tensor, which a graph does not have",
            stack=line,
            compile="0/0",
            func=compiling.func,
            hint="Keep it a tensor.",
        )
    )
    compiling.compile("0/0", 100)
    compiling.compile("1/0", resumed=line)
    guard = Guard("value", "the value that was read", "27", "28", "value == 27", stack=after, handed=True)
    compiling.recompile("1/1", guard, resumed=line)
    (finding,) = compiling.findings("graph_break")
    assert finding.advice.startswith(words)
    assert ("pass it as an int" in finding.advice) == (words != "Keep it a tensor.")


@pytest.mark.parametrize("within", ["forward", "watch"])
def test_what_a_compiled_function_computes_is_no_number_that_is_made_before_the_call(within: str) -> None:
    """A layer warns of a rank that is low: in a function that the compiled one calls, and gives what it computed."""
    compiling = Compiling()
    outer = (21,) if within == "watch" else ()
    line = compiling.story.line(31, "rank = torch.linalg.matrix_rank(a).item()", func=within, outer=outer)
    after = compiling.story.line(32, "if rank < self.least:", func=within, outer=outer)
    reason = "item() needs the value of the tensor, which a graph does not have"
    broke = {"reason": reason, "stack": line, "compile": "0/0", "func": compiling.func, "hint": "Keep it a tensor."}
    compiling.story.emit(GraphBreak(t=compiling.story.now, **broke))  # type: ignore[arg-type]
    compiling.compile("0/0", 100)
    compiling.compile("1/0", resumed=line)
    guard = Guard("value", "the value that was read", "27", "28", "value == 27", stack=after, handed=True)
    compiling.recompile("1/1", guard, resumed=line)
    (finding,) = compiling.findings("graph_break")
    assert finding.advice.startswith("Compute both branches in each call and choose with torch.where (the larger of")
    assert "no tensor can stand for" not in finding.advice
    assert ("pass it as an int" in finding.advice) == (within == "forward")


def test_the_size_of_a_selection_is_reported_with_the_break_that_made_it() -> None:
    compiling = Compiling()
    compiling.broke("0/0", 21, "the size of a selection")
    compiling.compile("0/0", 100)
    place = compiling.story.line(21, "print(x)", func="forward")
    compiling.compile("1/0", resumed=place)
    size = Guard("shape", "rows", "f32[38]", "f32[40]", "size mismatch", 0, handed=True)
    compiling.recompile("1/1", size, Guard("value", "self.rate", "0.1", "0.2"), ms=60, resumed=place)
    (finding,) = compiling.findings()
    assert (finding.kind, finding.place.line) == ("graph_break", 21)
    assert "the size made here is a guard" in finding.cause
    assert "38, 40" in finding.cause
    assert "compile 1/1: 60 ms, rows f32[38] -> f32[40]; failed too: self.rate 0.1 -> 0.2" in finding.evidence


def test_what_breaks_on_the_values_that_a_line_read_is_a_part_of_that() -> None:
    """A line reads a tensor into a list and gives that to a helper, where Dynamo gives up a second time. A break that
    another line reaches, or the same one before it reads, is its own."""
    for through, resumed, findings in ((21, 21, 1), (25, 21, 2), (21, 0, 2)):
        compiling = Compiling()
        story = compiling.story
        compiling.broke("0/0", 21, "tolist() needs the values")
        compiling.compile("0/0", 100, restarted=40 * MS)
        behind = story.line(resumed, "print(x)", func="forward") if resumed else 0
        helper = story.line(5, "order = sorted(rows, key=cost)", func="match", outer=(through,))
        reason = "sorted() needs constants"
        story.emit(GraphBreak(t=story.now, reason=reason, stack=helper, compile="1/0", func=compiling.func))
        compiling.compile("1/0", 50, restarted=20 * MS, resumed=behind)
        found = compiling.findings()
        assert len(found) == findings, (through, resumed)
        assert sum(len(one.parts) for one in found) == 2 - findings


def test_a_batch_of_another_size_is_a_recompilation_behind_a_break_too() -> None:
    compiling = Compiling()
    compiling.broke("0/0", 21)
    compiling.compile("0/0", 100)
    place = compiling.story.line(21, "print(x)", func="forward")
    compiling.compile("1/0", resumed=place)
    compiling.recompile("0/1", shape(4, 5), ms=60)
    half = Guard("shape", "h", "f32[2,8]", "f32[3,8]", "size mismatch", 0, handed=True)
    compiling.recompile("1/1", half, ms=60, resumed=place)
    findings = {finding.kind: finding for finding in compiling.findings()}
    assert (findings["recompile"].count, findings["recompile"].cost_s) == (2, pytest.approx(0.12))
    assert "compiled again" not in findings["graph_break"].cause


def test_what_follows_a_break_is_of_the_phase_that_the_function_is_in() -> None:
    compiling = Compiling()
    compiling.broke("0/0", 21)
    compiling.compile("0/0", 100)
    place = compiling.story.line(21, "print(x)", func="forward")
    compiling.compile("1/0", resumed=place)
    evaluation = compiling.story.line(60, "logits = fast(x)", func="evaluate")
    mode = Guard("mode", "grad_mode", "True", "False")
    compiling.recompile("0/1", mode, stack=evaluation)
    compiling.recompile("1/1", mode, stack=evaluation, resumed=place)
    assert [finding.kind for finding in compiling.findings()] == ["graph_break"]


def test_breaks_in_lines_that_follow_each_other_are_one_finding_and_others_are_not() -> None:
    compiling = Compiling()
    for number, line in enumerate((21, 22, 30)):
        compiling.broke(f"{number}/0", line, "the shape depends on the values")
        compiling.compile(f"{number}/0", 100, restarted=20 * MS)
    near, far = sorted(compiling.findings(), key=lambda finding: finding.place.line)
    assert (near.place.line, [place.line for place in near.also], near.count) == (21, [22], 2)
    assert "here and in line 22, twice in all" in near.cause
    assert near.cost_s == pytest.approx(0.04)
    assert (far.place.line, far.also, far.count) == (30, (), 1)


def test_all_readings_of_a_clock_in_a_function_are_one_measurement() -> None:
    compiling = Compiling()
    for number, line in enumerate((21, 25, 30)):
        compiling.broke(f"{number}/0", line, "time.perf_counter gives another value at each call")
        compiling.compile(f"{number}/0", 100, restarted=20 * MS)
    (timing,) = compiling.findings()
    assert (timing.place.line, [place.line for place in timing.also], timing.count) == (21, [25, 30], 3)


def test_breaks_by_design_are_no_findings_unless_nothing_is_left() -> None:
    compiling = Compiling()
    compiling.broke("0/0", 21, "backward() starts a graph of its own", by_design=True)
    compiling.compile("0/0")
    assert compiling.findings() == []
    empty = Compiling()
    empty.broke("0/0", 21, "disabled by a library", by_design=True)
    empty.compile("0/0", ops=0)
    empty.compile("1/0", ops=0)
    (finding,) = empty.findings()
    assert (finding.kind, finding.place.line) == ("graph_break", 40)
    assert "captured 0 operations of forward" in finding.cause


def test_a_function_that_is_skipped_says_so() -> None:
    compiling = Compiling()
    compiling.broke("0/0", 21, "print cannot be in a graph", skipped=True)
    compiling.compile("0/0", ops=0, compiled=False, fail="Unsupported")
    (finding,) = compiling.findings()
    assert "Nothing of forward is compiled" in finding.cause


def test_what_runs_as_plain_python_is_told_from_what_is_cut() -> None:
    compiling = Compiling()
    earlier = compiling.story.line(12, "f = open(path)", func="forward")
    compiling.broke("0/0", 12, "open cannot be in a graph")
    compiling.compile("0/0")
    compiling.broke("1/0", 15, "a context manager", skipped=True, inside="a loop")
    compiling.compile("1/0", ops=0, compiled=False, resumed=earlier)
    causes = {finding.place.line: finding.cause for finding in compiling.findings()}
    assert causes[12].startswith("forward was cut in two here once")
    assert causes[15].startswith("Nothing after line 12 of forward is compiled:")
    assert "cannot leave a loop half-way" in causes[15]
    (function,) = compiling.story.report().torch_compile.functions
    assert (function.graphs, function.breaks, function.plain) == (1, 2, ("what follows line 12",))


def test_two_breaks_of_one_line_are_one_finding() -> None:
    compiling = Compiling()
    line = compiling.story.line(12, "print(x)", func="forward")
    compiling.broke("0/0", 12, "open cannot be in a graph", hint="Open it outside.")
    compiling.compile("0/0", restarted=10 * MS)
    compiling.broke("1/0", 12, "a file is no context manager", hint="Enter it outside.", skipped=True)
    compiling.compile("1/0", ops=0, compiled=False, resumed=line, restarted=20 * MS)
    (finding,) = compiling.findings()
    assert finding.count == 2
    assert finding.cost_s == pytest.approx(0.03)
    assert "open cannot be in a graph, and a file is no context manager" in finding.cause
    assert finding.advice == "Open it outside. Enter it outside."


def test_two_functions_of_one_name_are_told_apart_by_their_lines() -> None:
    compiling = Compiling()
    other = compiling.story.line(80, "def forward(x):", func="forward")
    for number, code in enumerate((compiling.code, other)):
        compiling.broke(f"{number}/0", 21 + number)
        compiling.compile(f"{number}/0", code=code)
    compiling.recompile("1/1", shape(4, 5), code=other)
    causes = " ".join(finding.cause for finding in compiling.findings())
    assert "forward (train.py:10) was cut in two" in causes
    assert "forward (train.py:80) was cut in two" in causes
    assert "forward (train.py:80) was compiled again once" in causes


def test_two_lines_that_run_one_function_of_a_library_are_told_each() -> None:
    """Two optimizers of a class: each line that steps one has a rate of its own to mend."""
    compiling = Compiling()
    compiling.code = compiling.story.line(
        30, "def step(self):", func="step", file="/v/site-packages/torch/optim/sgd.py"
    )
    compiling.compile("0/0")
    for at, line in enumerate((51, 52, 51, 52)):
        steps = compiling.story.line(line, "optimizer.step()", func="season")
        rate = Guard("value", "self.lr", f"0.{at + 1}", f"0.{at + 2}", f"self.lr == 0.{at + 1}", stack=steps)
        compiling.recompile(f"0/{at + 1}", rate, against=f"0/{at}", ms=1_000)
    assert sorted((one.place.line, one.count) for one in compiling.findings("recompile")) == [(51, 2), (52, 2)]


@pytest.mark.parametrize("met", ["before", "behind", "alone", "called"])
def test_what_the_whole_graph_had_is_no_break_of_its_own(met: str) -> None:
    """A decoder's step reads a number in a loop, so that the table that it looks up before is compiled by itself."""
    compiling = Compiling()
    story = compiling.story
    step, table, draw = (
        {"code": story.line(line, f"def {name}(x):", func=name), "func": story.text(name)}
        for line, name in ((60, "step"), (70, "table"), (80, "draw"))
    )

    def table_breaks(name: str) -> None:
        line = story.line(72, "keys = next(iter(found))", func="table")
        reason = "Dynamo does not support next() on dict_keyiterator"
        story.emit(GraphBreak(t=story.now, reason=reason, stack=line, compile=name, skipped=True, func=table["func"]))
        compiling.compile(name, ops=0, compiled=False, **(step if met == "called" else table))

    read = story.line(84, "best = score.item()", func="draw")
    for number, function in enumerate((step, draw)):
        if number and met in ("before", "called"):
            table_breaks("5/0")
        if number or met != "alone":
            name = f"{number}/0"
            story.emit(GraphBreak(t=story.now, reason="item()", stack=read, compile=name, func=function["func"]))
            story.spend(1)
            compiling.compile(name, restarted=20 * MS, **function)
    if met in ("behind", "alone"):
        table_breaks("5/0")
    found = compiling.findings("graph_break")
    assert sum(one.place.line == 72 for one in found) == (met != "before")
    if met == "before":
        (leading,) = found
        assert (leading.place.line, [part.place.line for part in leading.parts]) == (84, [72])
