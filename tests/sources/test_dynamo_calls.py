"""The timer around calls of inductor's graphs: real graphs, on a clock that the program moves."""

from __future__ import annotations

import os
import pickle
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch._dynamo
from torch._inductor.output_code import CompiledFxGraph

import xlaprof
from tests.sources.observed import Observed, observing
from xlaprof.events import Dropped, DynamoCompile, GraphBreak, GraphCalls, TimedGraph
from xlaprof.recording import recorder
from xlaprof.sources.dynamo.calls import timer, windows

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),  # what inductor imports is deprecated
    pytest.mark.filterwarnings("ignore:The .grad attribute"),  # Dynamo looks at what a break hands over
]

US, MS = 1_000, 1_000_000


class Clock:
    """Stands while PyTorch works, and moves where the program spends time."""

    def __init__(self) -> None:
        self.now = 1 << 50  # after all that is really compiled

    def __call__(self) -> int:
        return self.now

    def spend(self, ns: int) -> None:
        self.now += ns


CLOCK = Clock()


@torch.compiler.disable
def tell(value: Any) -> Any:
    """What the program does at its graph break: 4 ms of work."""
    CLOCK.spend(4 * MS)
    return value


def score(x: Any) -> Any:
    y = torch.tanh(x) * 2
    z = tell(y)
    return (z + 1).relu().sum()


@pytest.fixture(scope="module")
def compiled() -> Iterator[Callable[[Any], Any]]:
    """``score`` in two graphs, with the backward graphs of both; made while nothing is recorded."""
    torch._dynamo.reset()
    fast = torch.compile(score)
    fast(torch.ones(8, requires_grad=True)).backward()
    with torch.no_grad():
        fast(torch.ones(8))
    yield fast
    torch._dynamo.reset()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The timer's clock, with graphs that take 1 ms of it each: the program has changed their class itself."""
    original: Any = CompiledFxGraph.__call__

    def slow(self: Any, inputs: Any) -> Any:
        CLOCK.spend(1 * MS)
        return original(self, inputs)

    monkeypatch.setattr(CompiledFxGraph, "__call__", slow)
    monkeypatch.setattr(timer, "perf_counter_ns", CLOCK)
    return CLOCK


def calls_in(events: list[Any]) -> int:
    return sum(len(one.graphs) - one.joined for one in events if isinstance(one, GraphCalls))


def recorded(path: Path, program: Callable[[], Any]) -> Observed:
    with observing(path / "run.log") as found:
        program()
    return found[0]


def training(fast: Callable[[Any], Any], steps: int) -> Callable[[], None]:
    """Each step runs graphs for 1 ms four times, is at the break for 4 ms, and spends 12 ms elsewhere."""

    def program() -> None:
        for number in range(steps):
            with xlaprof.StepTrace("train", step_num=number):
                fast(torch.ones(8, requires_grad=True)).backward()
                CLOCK.spend(12 * MS)

    return program


def test_the_share_of_a_step_and_what_a_break_takes_of_it(tmp_path: Path, clock: Clock) -> None:
    """Compiled within the recording: 4 of 20 ms in graphs, 4 at the break."""
    torch._dynamo.reset()
    found = recorded(tmp_path, training(torch.compile(score), 30))
    run_time = found.report.torch_compile.run_time
    assert (run_time.share, run_time.step_s) == (pytest.approx(4 / 20), pytest.approx(0.020))
    (function,) = (one for one in found.report.torch_compile.functions if one.name == "score")
    assert [(one.backward, one.step_s) for one in function.graph_times] == [
        (False, pytest.approx(0.001)),
        (False, pytest.approx(0.001)),
        (True, pytest.approx(0.001)),
        (True, pytest.approx(0.001)),
    ]
    assert function.graph_times[1].line == found.line(found.of(GraphBreak)[0].stack)
    (finding,) = found.findings("graph_break")
    assert finding.between_s == pytest.approx(0.004)
    assert "4.0 ms of each step pass between the graphs on both sides" in finding.cause
    assert sorted(one.backward for one in found.of(TimedGraph)) == [False, False, True, True]
    assert {one.compile for one in found.of(TimedGraph)} == {one.compile for one in found.of(DynamoCompile)}
    assert not found.of(Dropped)


def test_graphs_from_inductors_cache_are_timed_alike(tmp_path: Path, clock: Clock) -> None:
    """The class's functions are no part of what is kept."""
    for number in range(2):
        torch._dynamo.reset()
        (tmp_path / str(number)).mkdir()
        found = recorded(tmp_path / str(number), training(torch.compile(score), 10))
    assert any(one.cached for one in found.of(DynamoCompile))
    assert sorted(one.backward for one in found.of(TimedGraph)) == [False, False, True, True]
    assert all(one.compile and one.func and one.code for one in found.of(TimedGraph))
    assert found.report.torch_compile.run_time.share == pytest.approx(4 / 20)


def test_graphs_from_before_the_recording_are_named_by_the_code_that_calls_them(
    tmp_path: Path, compiled: Callable[[Any], Any], clock: Clock
) -> None:
    found = recorded(tmp_path, training(compiled, 30))
    assert not found.of(DynamoCompile)
    run_time = found.report.torch_compile.run_time
    assert run_time.share == pytest.approx(4 / 20)
    assert "score 10%" in run_time.text
    assert "compiled before the recording began" in run_time.text
    forward = [one for one in found.of(TimedGraph) if not one.backward]
    assert [found.run.names.text(one.func) for one in forward] == ["score", "score"]
    assert forward[0].line == 0 < forward[1].line


def test_pauses_are_unbiased_where_windows_are_shorter_than_a_step(
    tmp_path: Path, compiled: Callable[[Any], Any], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step has 40 calls, a window 16, and half of a step's time lies in one place: 40 ms of graphs in 280 ms."""
    monkeypatch.setattr(timer, "CALLS", 16)
    monkeypatch.setattr(windows, "CALLS", 16)
    monkeypatch.setattr(windows, "EVERY_NS", 1_000 * MS)
    monkeypatch.setattr(timer, "random", SimpleNamespace(Random=lambda: random.Random(5)))  # the lot is the same

    def program() -> None:
        with torch.no_grad():
            for _ in range(400):
                for _ in range(20):
                    compiled(torch.ones(8))
                CLOCK.spend(160 * MS)

    found = recorded(tmp_path, program)
    run_time = found.report.torch_compile.run_time
    assert 500 < run_time.timed < 8_000
    assert run_time.calls == pytest.approx(16_000, rel=0.1)
    assert run_time.share == pytest.approx(40 / 280, rel=0.25)


def test_a_pause_is_over_when_calls_have_become_rare(
    tmp_path: Path, compiled: Callable[[Any], Any], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fast calls, and then one a second: eight times as long as it should take a pause lasts, and no longer."""
    monkeypatch.setattr(windows, "EVERY_NS", 100_000 * MS)
    monkeypatch.setattr(timer, "random", SimpleNamespace(Random=lambda: random.Random(5)))  # no pause of a few calls

    def program() -> None:
        with torch.no_grad():
            for _ in range(200):
                compiled(torch.ones(8))
            for _ in range(1_000):
                CLOCK.spend(1_000 * MS)
                compiled(torch.ones(8))

    found = recorded(tmp_path, program)
    slow = [one for one in found.of(GraphCalls) if max(one.after) >= 1_000 * MS]
    assert 20 < calls_in(slow) < 1_000


def test_the_class_is_as_it_was_when_the_recording_is_over(tmp_path: Path, compiled: Callable[[Any], Any]) -> None:
    before = {name: vars(CompiledFxGraph)[name] for name in ("__call__", "post_compile")}
    with xlaprof.record(tmp_path / "run.log"):
        assert all(vars(CompiledFxGraph)[name] is not one for name, one in before.items())
        assert CompiledFxGraph.__call__.__name__ == "__call__"
        assert pickle.loads(pickle.dumps(CompiledFxGraph)) is CompiledFxGraph
        compiled(torch.ones(8))
    assert {name: vars(CompiledFxGraph)[name] for name in before} == before


def test_who_replaces_the_class_meanwhile_keeps_what_he_put_there(
    tmp_path: Path, compiled: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    with xlaprof.record(tmp_path / "run.log"):
        ours: Any = CompiledFxGraph.__call__

        def theirs(self: Any, inputs: Any) -> Any:
            seen.append(1)
            return ours(self, inputs)

        monkeypatch.setattr(CompiledFxGraph, "__call__", theirs)
        compiled(torch.ones(8))
    assert CompiledFxGraph.__call__ is theirs
    assert len(seen) == 2
    compiled(torch.ones(8))  # runs through a timer whose recording is over
    assert len(seen) == 4
    monkeypatch.undo()
    assert CompiledFxGraph.__call__ is ours
    CompiledFxGraph.__call__ = ours.__wrapped__  # type: ignore[method-assign]


def test_an_exception_passes_through_and_its_call_is_timed(
    tmp_path: Path, compiled: Callable[[Any], Any], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stop(Exception):
        pass

    patched: Any = CompiledFxGraph.__call__

    def fails(self: Any, inputs: Any) -> Any:
        patched(self, inputs)
        raise Stop

    monkeypatch.setattr(CompiledFxGraph, "__call__", fails)

    def program() -> None:
        for _ in range(5):
            with pytest.raises(Stop):
                compiled(torch.ones(8))

    found = recorded(tmp_path, program)
    assert calls_in(found.events) == 5
    assert not found.of(Dropped)


def test_results_are_the_same_and_calls_of_several_threads_are_told_apart(
    tmp_path: Path, compiled: Callable[[Any], Any]
) -> None:
    expected = compiled(torch.ones(8))
    results: list[Any] = []

    def work() -> None:
        with torch.no_grad():
            results.extend(compiled(torch.ones(8)) for _ in range(50))

    def program() -> None:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()

    found = recorded(tmp_path, program)
    assert len(results) == 150
    assert all(torch.equal(one, expected) for one in results)
    tids = {tid for one in found.of(GraphCalls) for tid in (one.tids or [one.tid])}
    assert len(tids) == 3
    assert not found.of(Dropped)


@pytest.mark.filterwarnings("ignore:os.fork")  # of a process that may have used jax
def test_a_forked_child_is_not_timed_and_works(tmp_path: Path, compiled: Callable[[Any], Any]) -> None:
    def program() -> None:
        compiled(torch.ones(8))
        child = os.fork()
        if not child:
            code = 1
            try:
                compiled(torch.ones(8))
                code = 0 if recorder.active is None and not hasattr(CompiledFxGraph.__call__, "__wrapped__") else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        compiled(torch.ones(8))

    assert calls_in(recorded(tmp_path, program).events) == 4


def test_dynamo_does_not_compile_the_timer_in_a_compiled_step(tmp_path: Path) -> None:
    """A step that calls backward() runs the backward graph where Dynamo looks at each function that is called."""
    torch._dynamo.reset()
    fast = torch.compile(score)

    def step(x: Any) -> Any:
        loss = fast(x)
        loss.backward()
        return x.grad + 1

    def program() -> None:
        whole = torch.compile(step)
        for _ in range(4):
            whole(torch.ones(8, requires_grad=True))

    found = recorded(tmp_path, program)
    names = {found.run.names.text(one.func) for one in found.of(DynamoCompile)}
    assert names <= {"step", "score"}
    assert calls_in(found.events) > 8
    torch._dynamo.reset()


def test_a_pytorch_of_another_form_is_left_alone(
    tmp_path: Path, compiled: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    original: Any = CompiledFxGraph.__call__

    def call(self: Any, inputs: Any, stream: Any = None) -> Any:
        return original(self, inputs)

    monkeypatch.setattr(CompiledFxGraph, "__call__", call)

    def program() -> None:
        assert CompiledFxGraph.__call__ is call
        compiled(torch.ones(8))

    found = recorded(tmp_path, program)
    assert not found.of(TimedGraph, GraphCalls)


def test_where_calls_come_fast_pytorchs_own_function_stands_in_the_class_in_pauses(
    tmp_path: Path, compiled: Callable[[Any], Any], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window of 256 calls, a pause by the clock, and a window behind up to 1,024 more calls."""
    monkeypatch.setattr(windows, "FAST_NS", 5 * MS)
    monkeypatch.setattr(windows, "EVERY_NS", 100_000 * MS)
    own: Any = CompiledFxGraph.__call__

    def runs(times: int) -> None:
        with torch.no_grad():
            for _ in range(times):
                compiled(torch.ones(8))

    with xlaprof.record(path := tmp_path / "run.log"):
        assert CompiledFxGraph.__call__ is not own
        runs(200)
        assert CompiledFxGraph.__call__ is own
        clock.spend(100_000 * MS)
        assert recorder.active is not None
        recorder.active.flush()  # the writer's thread takes a turn
        assert CompiledFxGraph.__call__ is not own
        runs(700)
        assert CompiledFxGraph.__call__ is own
    assert CompiledFxGraph.__call__ is own
    events = list(xlaprof.read(path))
    assert calls_in(events) == 512
    skipped = sum(one.skipped for one in events if isinstance(one, GraphCalls))
    assert skipped >= 100_000 / 3 * 0.9  # a call took 3 ms: as many as are made in that time at this pace


def test_who_wraps_our_function_and_puts_that_in_its_place_in_a_pause_is_called_once(
    tmp_path: Path, compiled: Callable[[Any], Any], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "FAST_NS", 5 * MS)
    monkeypatch.setattr(windows, "EVERY_NS", 100_000 * MS)
    with xlaprof.record(tmp_path / "run.log"), torch.no_grad():
        ours: Any = CompiledFxGraph.__call__
        for _ in range(200):
            compiled(torch.ones(8))
        seen = []

        def theirs(self: Any, inputs: Any) -> Any:
            seen.append(1)
            return ours(self, inputs)

        CompiledFxGraph.__call__ = theirs  # type: ignore[method-assign]
        clock.spend(100_000 * MS)
        assert recorder.active is not None
        recorder.active.flush()
        for _ in range(700):
            compiled(torch.ones(8))
        assert len(seen) == 1_400
    assert CompiledFxGraph.__call__ is theirs
