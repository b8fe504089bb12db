"""``torch.compile`` observed while it works: programs of which is known what they do, with exact counts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo

import xlaprof
from tests.sources.observed import Counts, line_of, observe
from xlaprof.events import Compiling, DynamoCompile, DynamoLimit, GraphBreak, Recompile

# torch's own modules, which Dynamo and Inductor import while they compile
pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def compiled(function: Any, **options: Any) -> Any:
    return torch.compile(function, backend="eager", **options)


def steered(heading: Any, wind: Any) -> Any:
    drift = 0.1 * torch.tanh(wind)
    print("looked at the wind")
    if wind.mean() < 0:
        drift = drift - 0.2
    return heading + drift


def test_a_print_and_an_if_make_four_graphs_of_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def program() -> None:
        fast = compiled(steered)
        for wind in (0.5, 0.7, -0.5):
            fast(torch.zeros(6), torch.full((6,), wind))

    found = observe(tmp_path, program)
    assert found.counts == Counts(compiles=4, graphs=4, breaks=2)
    breaks = found.of(GraphBreak)
    assert [event.gb for event in breaks] == ["GB0059", "GB0170"]
    assert [found.line(event.stack) for event in breaks] == [
        line_of(steered, "print"),
        line_of(steered, "if wind.mean"),
    ]
    assert {found.run.names.text(event.func) for event in found.of(DynamoCompile)} == {"steered"}
    assert {found.run.names.text(event.backend) for event in found.of(DynamoCompile)} == {"eager"}
    assert {found.line(event.stack) for event in found.of(DynamoCompile)} == {line_of(program, "fast(")}
    assert all(event.dur > event.restarted >= 0 for event in found.of(DynamoCompile))
    first, second = sorted(found.findings("graph_break"), key=lambda finding: finding.place.line)
    assert (first.place.line, first.count) == (line_of(steered, "print"), 1)
    assert "steered" in first.cause
    assert "4 graphs instead of one" in first.cause
    assert "Remove the print" in first.advice
    assert first.cost_s > 0, "tracing that was thrown away"
    assert "torch.where" in second.advice
    assert found.findings() == found.findings("graph_break")
    printed = capsys.readouterr()
    assert printed.out == "looked at the wind\n" * 3
    assert "xlaprof" not in printed.err


def scaled(x: Any, k: int = 2) -> Any:
    return x * k


def test_one_function_seven_causes(tmp_path: Path) -> None:
    inputs = [
        torch.randn(4, 3),
        torch.randn(5, 3),
        torch.randn(1, 3),
        torch.randn(4, 3, 2),
        torch.randn(4, 3).double(),
        torch.randn(4, 3).half(),
        torch.randn(4, 3).requires_grad_(),
    ]

    def program() -> None:
        fast = compiled(scaled)
        for x in inputs:
            fast(x)

    found = observe(tmp_path, program)
    assert found.counts == Counts(compiles=7, graphs=7, recompiles=6)
    assert found.changes == [
        ("shape", "x", "f32[4,3]", "f32[5,3]"),
        ("size bound", "x", "f32[5,3]", "f32[1,3]"),
        ("rank", "x", "f32[1,3]", "f32[4,3,2]"),
        ("dtype", "x", "float32", "float64"),
        ("dtype", "x", "float64", "float16"),
        ("requires_grad", "x", "False", "True"),
    ]
    findings = found.findings()
    assert {finding.kind for finding in findings} == {"recompile"}
    assert {finding.place.line for finding in findings} == {line_of(program, "fast(x)")}
    assert sum(finding.count for finding in findings) == 6
    by_change = {finding.change.what: finding for finding in findings if finding.change is not None}
    assert "mark_dynamic(x, 0)" in by_change["shape of x"].advice or "mark_unbacked" in by_change["shape of x"].advice
    assert by_change["dtype of x"].values == (("float32", 1), ("float64", 1), ("float16", 1))
    seconds = sum(event.dur for event in found.of(DynamoCompile)[1:]) / 1e9
    assert sum(finding.cost_s for finding in findings) == pytest.approx(seconds)


def test_the_limit_is_the_loudest_finding(tmp_path: Path) -> None:
    def program() -> None:
        fast = compiled(scaled, dynamic=False)
        for size in range(2, 12):
            with xlaprof.StepTrace("train", step_num=size):
                fast(torch.randn(size))

    found = observe(tmp_path, program)
    assert found.counts == Counts(compiles=9, graphs=8, recompiles=8, limits=1)
    (limit,) = found.of(DynamoLimit)
    assert (limit.compile, limit.limit, limit.value) == ("0/8", "recompile_limit", 8)
    assert (limit.guard.old, limit.guard.new) == ("f32[9]", "f32[10]")
    (finding,) = found.findings()
    assert (finding.kind, finding.severity) == ("recompile", "high")
    assert "recompile_limit = 8" in finding.cause
    assert "since step 10" in finding.cause
    assert "scaled was compiled again 7 times" in finding.cause
    assert [value for value, _ in finding.values] == [str(size) for size in range(2, 11)]


def test_a_limit_comes_before_what_costs_more(tmp_path: Path) -> None:
    def program() -> None:
        fast, slow = compiled(scaled, dynamic=False), compiled(steered)
        for size in range(2, 12):
            fast(torch.randn(size))
        slow(torch.randn(10), torch.randn(10).abs())

    found = observe(tmp_path, program)
    first, *others = found.findings()
    assert (first.kind, first.severity) == ("recompile", "high")
    assert {finding.kind for finding in others} == {"graph_break"}


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.drop = torch.nn.Dropout(0.5)
        self.k = 2
        self.mode = "train"

    def forward(self, x: Any) -> Any:
        y = self.drop(self.linear(x)) * self.k
        return y if self.mode == "train" else y + 1


def test_old_and_new_value_of_python_values(tmp_path: Path) -> None:
    block = Block()

    def program() -> None:
        fast, x = compiled(block), torch.randn(2, 3)
        for k, mode, training, grad in (
            (2, "train", True, True),
            (3, "train", True, True),
            (3, "eval", True, True),
            (3, "eval", False, True),
            (3, "eval", False, False),
        ):
            block.k, block.mode = k, mode
            block.train(training)
            with torch.set_grad_enabled(grad):
                fast(x)

    found = observe(tmp_path, program)
    assert found.changes == [
        ("value", "self.k", "2", "3"),
        ("value", "self.mode", "'train'", "'eval'"),
        ("training", "self.drop", "True", "False"),
        ("mode", "grad_mode", "True", "False"),
    ]
    lines = {finding.change.what: finding.place.line for finding in found.findings() if finding.change is not None}
    assert lines["Python value of self.k"] == line_of(Block, "* self.k")
    assert lines["Python value of self.mode"] == line_of(Block, "self.mode ==")
    assert lines["mode of PyTorch of grad_mode"] == line_of(program, "fast(x)")
    made = next(finding for finding in found.findings() if finding.place.line == line_of(Block, "* self.k"))
    assert line_of(program, "fast(x)") in {place.line for place in made.also}


def joined(x: Any, parts: Any, flag: Any = None) -> Any:
    for part in parts:
        x = x + part
    return x if flag is None else x * 2


def test_lists_types_closures_and_globals(tmp_path: Path) -> None:
    factor = 2

    def closure(x: Any) -> Any:
        return x * factor

    def program() -> None:
        nonlocal factor
        fast = compiled(joined)
        x = torch.randn(3)
        fast(x, [torch.ones(3)])
        fast(x, [torch.ones(3), torch.ones(3)])
        fast(x, (torch.ones(3), torch.ones(3)))
        inner = compiled(closure, dynamic=False)
        inner(x)
        factor = 5
        inner(x)

    found = observe(tmp_path, program)
    assert found.changes == [
        ("length", "parts", "1", "2"),
        ("type", "parts", "list", "tuple"),
        ("value", "factor", "2", "5"),
    ]


def test_all_guards_that_fail_are_reported(tmp_path: Path) -> None:
    def both(x: Any, k: int, name: str) -> Any:
        return x * k if name == "a" else x + k

    def program() -> None:
        fast = compiled(both, dynamic=False)
        fast(torch.randn(3), 2, "a")
        fast(torch.randn(4), 3, "b")

    found = observe(tmp_path, program)
    (event,) = found.of(Recompile)
    assert {(guard.kind, guard.subject) for guard in event.guards} == {
        ("shape", "x"),
        ("value", "k"),
        ("value", "name"),
    }


def read(x: Any) -> Any:
    value = x.sum().item()
    return x * value


def test_what_a_value_read_at_a_break_recompiles_is_reported_with_the_break(tmp_path: Path) -> None:
    def program() -> None:
        fast = compiled(read)
        for i in range(4):
            fast(torch.full((3,), float(i + 1)))

    found = observe(tmp_path, program)
    assert found.counts == Counts(compiles=3, graphs=3, breaks=1, recompiles=1)
    (finding,) = found.findings()
    assert (finding.kind, finding.place.line) == ("graph_break", line_of(read, ".item()"))
    assert "is a guard" in finding.cause
    assert "3.0, 6.0" in finding.cause


def timed(x: Any) -> Any:
    started = time.perf_counter()
    y = torch.relu(x + 1)
    spent = time.perf_counter() - started
    return y * 2, spent


def test_a_value_that_a_break_left_in_a_variable_is_reported_with_that_break(tmp_path: Path) -> None:
    def program() -> None:
        fast = compiled(timed)
        for _ in range(4):
            fast(torch.randn(3))

    found = observe(tmp_path, program)
    assert ("value", "started") in {change[:2] for change in found.changes}
    (measurement,) = found.findings()
    assert (measurement.kind, measurement.place.line) == ("graph_break", line_of(timed, "started = "))
    assert [place.line for place in measurement.also] == [line_of(timed, "spent = ")]


class Stack(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(4))

    def forward(self, x: Any, last: int) -> Any:
        for layer in self.layers[:last]:
            x = layer(x)
        return x


def test_a_guard_that_a_library_makes_for_the_users_line_is_reported_there_each_time(tmp_path: Path) -> None:
    """Of later versions PyTorch names its own line only, in container.py, and without the beginning of its name."""

    def program() -> None:
        fast = compiled(Stack().eval())
        for last in (2, 3, 1, 4):
            fast(torch.randn(2, 4), last)

    found = observe(tmp_path, program)
    (finding,) = found.findings()
    assert (finding.kind, finding.count) == ("recompile", 3)
    assert finding.place.line == line_of(Stack, "for layer in")
    assert found.changes[0] == ("value", "last", "2", "3")


def test_a_phase_of_its_own_is_no_defect(tmp_path: Path) -> None:
    block = Block()

    def program() -> None:
        fast = compiled(block)
        for _ in range(3):
            block.train()
            for _ in range(3):
                fast(torch.randn(4, 3)).sum().backward()
            block.eval()
            with torch.no_grad():
                fast(torch.randn(7, 3))

    found = observe(tmp_path, program)
    assert found.counts.recompiles == 1
    assert found.findings() == []


def test_a_version_for_each_block_of_a_model_is_no_defect(tmp_path: Path) -> None:
    layers = torch.nn.ModuleList(torch.nn.Linear(n, n) for n in (3, 4, 5))

    class Stack(torch.nn.Module):
        def __init__(self, layer: Any) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Any) -> Any:
            return self.layer(x).relu()

    def program() -> None:
        blocks = [Stack(layer) for layer in layers]
        for block in blocks:
            block.compile(backend="eager")
        for _ in range(2):
            for block, layer in zip(blocks, layers, strict=True):
                block(torch.randn(2, layer.in_features))

    found = observe(tmp_path, program)
    assert found.counts.recompiles == 2
    assert all(event.fresh for event in found.of(Recompile))
    assert found.findings() == []


def test_the_version_that_comes_nearest_is_one_of_the_same_mode(tmp_path: Path) -> None:
    """Evaluated with the sizes of the training, of all tensors, after others: sizes changed, not the mode."""

    def total(parts: list[Any]) -> Any:
        return sum(part.sum() for part in parts)

    def program() -> None:
        fast = compiled(total, dynamic=False)
        fast([torch.ones(4)] * 6)
        with torch.no_grad():
            fast([torch.ones(5)] * 6)
            fast([torch.ones(4)] * 6)  # to and fro

    found = observe(tmp_path, program)
    first, second = (one.guards[0].kind for one in found.of(Recompile))
    assert (first, second) == ("mode", "shape")


def in_a_loop(x: Any) -> Any:
    for i in range(3):
        x = x + 1
        print(i)
    return x


def test_a_function_skipped_altogether_says_so(tmp_path: Path) -> None:
    found = observe(tmp_path, lambda: compiled(in_a_loop)(torch.randn(3)))
    assert found.counts == Counts(compiles=1, graphs=0, breaks=1)
    (finding,) = found.findings()
    assert finding.place.line == line_of(in_a_loop, "print")
    assert "Nothing of in_a_loop is compiled" in finding.cause
    assert "captured 0 operations" in finding.cause


def helper(x: Any) -> Any:
    print("hi")
    return x + 1


def test_a_break_in_a_function_that_is_called_is_one_finding(tmp_path: Path) -> None:
    found = observe(tmp_path, lambda: compiled(lambda x: helper(x * 2) * 3)(torch.randn(3)))
    assert found.counts.breaks == 2, "met when the call was inlined, and again in the function itself"
    (finding,) = found.findings()
    assert (finding.place.line, finding.count) == (line_of(helper, "print"), 2)


def test_a_training_step_compiled_as_a_whole_is_clean(tmp_path: Path) -> None:
    linear = torch.nn.Linear(3, 3)
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = linear(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    def program() -> None:
        fast = compiled(step)
        for _ in range(3):
            fast(torch.randn(2, 3))

    found = observe(tmp_path, program)
    assert all(event.by_design for event in found.of(GraphBreak))
    assert [finding for finding in found.findings() if finding.kind == "graph_break"] == []


def test_the_first_graph_break_asked_for_is_the_users(tmp_path: Path) -> None:
    def cut(x: Any) -> Any:
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2

    found = observe(tmp_path, lambda: compiled(cut)(torch.randn(3)))
    (finding,) = found.findings()
    assert finding.place.line == line_of(cut, "graph_break()")


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_any_backend(tmp_path: Path, backend: str) -> None:
    def program() -> None:
        fast = torch.compile(scaled, backend=backend)
        for size in (4, 5):
            fast(torch.randn(size, 3, requires_grad=True)).sum().backward()

    found = observe(tmp_path, program)
    assert found.counts.recompiles == 1
    assert found.counts.graphs == 2
    torch._dynamo.reset()
    again = observe(tmp_path, program)  # as a second run
    assert {event.cached for event in again.of(DynamoCompile) if not event.backward} == {backend == "inductor"}
    first = next(charge.why for charge in again.report.torch_compile.charges if charge.what == "first")
    assert ("in its cache already" in first) == (backend == "inductor")
    assert {found.run.names.text(event.backend) for event in found.of(DynamoCompile) if not event.backward} == {backend}
    assert [finding.kind for finding in found.findings()] == ["recompile"]


def test_the_live_view_learns_when_compiling_begins(tmp_path: Path) -> None:
    def program() -> None:
        compiled(scaled)(torch.randn(3))

    found = observe(tmp_path, program)
    begun, *phases = found.of(Compiling)
    (done,) = found.of(DynamoCompile)
    assert begun.trigger == "dynamo"
    assert found.line(begun.stack) == line_of(program, "compiled(")
    order = [event for event in found.events if isinstance(event, Compiling | DynamoCompile)]
    assert order == [begun, *phases, done]
    assert [event.phase for event in phases] == ["Dynamo"]
    assert found.run.compiling is None


def test_the_live_view_learns_of_each_phase_that_begins(tmp_path: Path) -> None:
    def program() -> None:
        torch.compile(scaled, backend="aot_eager")(torch.randn(3))

    begun, *phases = observe(tmp_path, program).of(Compiling)
    assert [event.phase for event in phases] == ["Dynamo", "AOTAutograd"]
    assert {event.t - event.spent for event in phases} == {begun.t}


def test_counters_tell_how_much_was_compiled(tmp_path: Path) -> None:
    found = observe(tmp_path, lambda: compiled(steered)(torch.randn(10), torch.randn(10).abs()))
    assert found.report.counters["DynamoCompile"] == 3
    assert found.report.counters["DynamoGraphBreak"] == 2
    assert found.report.seconds["DynamoCompile"] > 0
