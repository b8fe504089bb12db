"""Scopes and steps as people write them: nested, decorated, recursive, in threads, tasks and generators."""

import asyncio
import contextlib
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from recording import Recorded, recording

import xlaprof
from xlaprof import StepTrace, Trace
from xlaprof.events import Scope, Stack, Step, Thread


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "run.log"


def test_nested_scopes_know_their_depth_and_lie_inside_one_another(log: Path) -> None:
    with recording(log) as recorded, Trace("epoch"), Trace("step"):
        with Trace("forward"):
            pass
        with Trace("backward"):
            pass
    recorded = recorded()
    assert recorded.scopes == [("forward", 2), ("backward", 2), ("step", 1), ("epoch", 0)]
    forward, backward, step, epoch = recorded.of(Scope)
    assert epoch.t <= step.t <= forward.t <= forward.t + forward.dur <= backward.t
    assert backward.t + backward.dur <= step.t + step.dur <= epoch.t + epoch.dur


def test_steps_have_numbers_and_are_no_scopes(log: Path) -> None:
    with recording(log) as recorded:
        for number in (3, 4):
            with StepTrace("train", step_num=number, lr=0.1), Trace("forward"):
                pass
    recorded = recorded()
    assert recorded.steps == [("train", 3), ("train", 4)]
    assert recorded.scopes == [("forward", 0), ("forward", 0)]
    assert recorded.of(Step)[0].meta == {"lr": 0.1}


def test_steps_without_a_number_are_counted_by_name_recorded_or_not(log: Path) -> None:
    def steps(name: str, count: int) -> None:
        for _ in range(count):
            with StepTrace(name):
                pass

    steps("counted here", 2)
    with recording(log) as recorded:
        steps("counted here", 2)
        steps("counted there", 1)
    assert recorded().steps == [("counted here", 2), ("counted here", 3), ("counted there", 0)]


def test_an_exception_is_noted_and_passes_untouched(log: Path) -> None:
    boom = ValueError("boom")
    with recording(log) as recorded:
        with pytest.raises(ValueError, match="boom") as caught, StepTrace("train", step_num=0), Trace("forward"):
            raise boom
        with Trace("after"):
            pass
    assert caught.value is boom
    recorded = recorded()
    assert [scope.error for scope in recorded.of(Scope)] == ["ValueError", ""]
    assert recorded.of(Step)[0].error == "ValueError"
    assert recorded.scopes[-1] == ("after", 0)


def test_one_instance_may_be_entered_again_inside_itself(log: Path) -> None:
    again = Trace("again")
    with recording(log) as recorded, again, Trace("between"), again:
        pass
    assert recorded().scopes == [("again", 2), ("between", 1), ("again", 0)]


def test_one_instance_may_be_entered_by_many_threads_at_once(log: Path) -> None:
    shared = Trace("shared")
    all_inside = threading.Barrier(4)

    def work() -> None:
        with shared:
            all_inside.wait()

    with recording(log) as recorded:
        threads = [threading.Thread(target=work, name=f"worker {i}") for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    recorded = recorded()
    assert recorded.scopes == [("shared", 0)] * 4
    assert len({scope.tid for scope in recorded.of(Scope)}) == 4
    names = {thread.tid: thread.name for thread in recorded.of(Thread)}
    assert names[1] == "MainThread"
    assert {names[scope.tid] for scope in recorded.of(Scope)} == {f"worker {i}" for i in range(4)}


def test_a_recursive_function_may_be_decorated(log: Path) -> None:
    @Trace("fact")
    def fact(n: int) -> int:
        """n!"""
        return 1 if n == 0 else n * fact(n - 1)

    assert fact(3) == 6  # with nothing recording
    with recording(log) as recorded:
        assert fact(3) == 6
    assert recorded().scopes == [("fact", 3), ("fact", 2), ("fact", 1), ("fact", 0)]
    assert (fact.__name__, fact.__doc__) == ("fact", "n!")


def test_methods_of_all_kinds_may_be_decorated(log: Path) -> None:
    class Model:
        @Trace("plain")
        def plain(self, x: int) -> int:
            return x

        @Trace("static")
        @staticmethod
        def static(x: int) -> int:
            return x

        @classmethod
        @Trace("class")
        def of_class(cls, x: int) -> tuple[type, int]:
            return cls, x

        @Trace("class outside")
        @classmethod
        def of_class_outside(cls, x: int) -> tuple[type, int]:
            return cls, x

    with recording(log) as recorded:
        assert Model().plain(1) == Model.static(1) == Model().static(1) == 1
        assert Model.of_class(2) == Model.of_class_outside(2) == (Model, 2)
    assert [name for name, _ in recorded().scopes] == ["plain", "static", "static", "class", "class outside"]


def test_only_functions_may_be_decorated() -> None:
    with pytest.raises(TypeError, match="Trace decorates functions, not int"):
        Trace("x")(3)


def test_a_generator_is_timed_while_its_body_runs_only(log: Path) -> None:
    @Trace("load")
    def batches() -> Iterator[int]:
        yield 1
        yield 2

    with recording(log) as recorded:
        for batch in batches():
            with Trace(f"train {batch}"):
                pass
    recorded = recorded()
    # three resumptions: to each value, and to the end, which is no error
    assert recorded.scopes == [("load", 0), ("train 1", 0), ("load", 0), ("train 2", 0), ("load", 0)]
    assert not any(scope.error for scope in recorded.of(Scope))
    spans = [(scope.t, scope.t + scope.dur) for scope in recorded.of(Scope)]
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_a_decorated_generator_is_the_generator_it_was(log: Path) -> None:
    heard: list[object] = []

    def talk() -> Iterator[object]:
        try:
            heard.append((yield "first"))
            try:
                yield "second"
            except KeyError as error:
                heard.append(error)
                yield "third"
            return "result"
        finally:
            heard.append("closed")

    def converse(generator: Iterator[object]) -> list[object]:
        said = [next(generator), generator.send("hello"), generator.throw(KeyError("k"))]
        with pytest.raises(StopIteration) as stop:
            next(generator)
        return [*said, stop.value.value]

    plain = converse(talk())
    heard_plain, heard[:] = [str(item) for item in heard], []
    timed = Trace("talk")(talk)
    assert inspect.isgeneratorfunction(timed)
    with recording(log):
        assert converse(timed()) == plain == ["first", "second", "third", "result"]
    assert [str(item) for item in heard] == heard_plain


def test_a_generator_dropped_halfway_is_closed(log: Path) -> None:
    closed = []

    @Trace("numbers")
    def numbers() -> Iterator[int]:
        try:
            yield from range(10)
        finally:
            closed.append(True)

    with recording(log) as recorded:
        for number in numbers():
            if number == 1:
                break
        with Trace("after"):
            pass
    assert closed == [True]
    assert recorded().scopes[-1] == ("after", 0)


def test_an_exception_out_of_a_generator_is_an_error_of_its_scope(log: Path) -> None:
    @Trace("broken")
    def broken() -> Iterator[int]:
        yield 1
        raise OSError("gone")

    with recording(log) as recorded, pytest.raises(OSError, match="gone"):
        list(broken())
    assert [scope.error for scope in recorded().of(Scope)] == ["", "OSError"]


def test_a_scope_around_a_yield_survives_a_generator_that_is_abandoned(log: Path) -> None:
    def inside() -> Iterator[int]:
        with Trace("held"):
            yield 1
            yield 2

    with recording(log) as recorded:
        generator = inside()
        next(generator)
        with Trace("meanwhile"):
            generator.close()  # leaves "held" while "meanwhile", entered later, is open
        with Trace("after"):
            pass
    names = recorded().scopes
    assert names[0][0] == "held"
    assert names[-1] == ("after", 0)


def test_coroutines_are_timed_from_call_to_return(log: Path) -> None:
    @Trace("fetch")
    async def fetch(x: int) -> int:
        await asyncio.sleep(0)
        return x

    with recording(log) as recorded:
        assert asyncio.run(fetch(7)) == 7
    assert inspect.iscoroutinefunction(fetch)
    assert recorded().scopes == [("fetch", 0)]


def test_tasks_that_take_turns_on_a_thread_each_have_their_own_depth(log: Path) -> None:
    async def task(name: str, mine: asyncio.Event, other: asyncio.Event) -> None:
        with Trace(f"{name} outer"):
            mine.set()
            await other.wait()
            with Trace(f"{name} inner"):
                await asyncio.sleep(0)

    async def main() -> None:
        a, b = asyncio.Event(), asyncio.Event()
        await asyncio.gather(task("a", a, b), task("b", b, a))

    with recording(log) as recorded:
        with Trace("main"):
            asyncio.run(main())
        with Trace("after"):
            pass
    recorded = recorded()
    depths = dict(recorded.scopes)
    assert depths == {"a outer": 1, "b outer": 1, "a inner": 2, "b inner": 2, "main": 0, "after": 0}


def test_async_generators_are_timed_while_they_work(log: Path) -> None:
    @Trace("stream")
    async def stream() -> AsyncIterator[int]:
        heard = yield 1
        assert heard is None
        yield 2

    async def consume() -> list[int]:
        return [item async for item in stream()]

    with recording(log) as recorded:
        assert asyncio.run(consume()) == [1, 2]
    recorded = recorded()
    assert recorded.scopes == [("stream", 0)] * 3
    assert not any(scope.error for scope in recorded.of(Scope))


def test_a_scope_left_in_another_context_than_it_was_entered_in_is_recorded(log: Path) -> None:
    async def body() -> AsyncIterator[int]:
        with Trace("fixture"):
            yield 1

    async def main() -> None:
        generator = body()
        await asyncio.create_task(anext(generator))  # set up in one task,
        await asyncio.create_task(generator.aclose())  # torn down in another

    with recording(log) as recorded:
        asyncio.run(main())
        with Trace("after"):
            pass
    assert recorded().scopes == [("fixture", 0), ("after", 0)]


def test_a_pool_inherits_no_scopes(log: Path) -> None:
    def work() -> None:
        with Trace("work"):
            pass

    with recording(log) as recorded, Trace("outside"), ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()
    assert recorded().scopes == [("work", 0), ("outside", 0)]


def test_a_scope_entered_before_the_recording_is_not_in_it(log: Path) -> None:
    early = Trace("early")
    with early, recording(log) as recorded, Trace("inside"):
        pass
    recorder = xlaprof.record(log.with_name("second.log"))
    with early:
        recorder.start()
    with Trace("late"):
        recorder.stop()
    assert recorded().scopes == [("inside", 0)]
    assert Recorded(log.with_name("second.log")).scopes == []


class Watched:
    """Raises when it is looked at: whatever metadata does to it is an access of a user's object."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"{name} was read")

    __repr__ = __str__ = __len__ = __float__ = __int__ = __index__ = __bool__ = __iter__ = lambda self: self.read


def test_metadata_that_is_not_plain_is_named_not_read(log: Path) -> None:
    class Name(str):
        pass

    with recording(log) as recorded, Trace("x", a=1, b=2.5, c="s", d=True, e=None, name=Name("n"), f=Watched()):
        pass
    (scope,) = recorded().of(Scope)
    described = f"{Watched.__module__}.{Watched.__qualname__}"
    assert scope.meta == {"a": 1, "b": 2.5, "c": "s", "d": True, "e": None, "name": "n", "f": described}


def test_numbers_of_numpy_are_described_arrays_are_never_read(log: Path) -> None:
    with recording(log) as recorded, Trace("x", a=np.zeros((2, 3)), b=np.float64(0.5), c=np.int64(3)):
        pass
    (scope,) = recorded().of(Scope)
    assert scope.meta == {"a": "numpy.ndarray[2, 3]", "b": 0.5, "c": "numpy.int64[]"}


def test_a_tensor_is_never_read(log: Path) -> None:
    torch = pytest.importorskip("torch")
    reads = []

    class Lazy(torch.Tensor):
        """Every operation on it would make the device work."""

        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            if getattr(function, "__name__", "") != "__get__":  # `shape` is host knowledge
                reads.append(function)
            return super().__torch_function__(function, types, args, kwargs or {})

    tensor = torch.ones(2, 3).as_subclass(Lazy)
    with recording(log) as recorded:
        with Trace("x", loss=tensor, plain=torch.zeros(4)):
            pass
        with pytest.raises(TypeError, match=r"step_num must be an int, not torch.Tensor\[\]"):
            StepTrace("train", step_num=torch.tensor(3))
    assert reads == []
    (scope,) = recorded().of(Scope)
    assert scope.meta["plain"] == "torch.Tensor[4]"
    assert "Lazy" in scope.meta["loss"]


def test_step_numbers_of_numpy_are_numbers(log: Path) -> None:
    with recording(log) as recorded, StepTrace("train", step_num=np.int32(5)):
        pass
    assert recorded().steps == [("train", 5)]


@pytest.mark.parametrize("number", [10**30, -(10**30), 2**64, float("nan"), float("inf"), "\udcff", "x" * 100_000])
def test_metadata_that_json_has_no_room_for_is_recorded_as_well_as_it_can_be(log: Path, number: object) -> None:
    with recording(log) as recorded, Trace("x", number=number, name="kept"):
        pass
    recorded = recorded()
    assert recorded.scopes == [("x", 0)]
    assert recorded.of(Scope)[0].meta["name"] == "kept"
    assert recorded.notes == ()


def test_names_are_any_text(log: Path) -> None:
    names = ["", "a b", 'quote"', "new\nline", "\0", "\udcff surrogate", "名前", "x" * 5_000]
    with recording(log) as recorded:
        for name in names:
            with Trace(name):
                pass
    recorded = recorded()
    assert recorded.notes == ()
    assert len(recorded.of(Scope)) == len(names)
    assert recorded.texts[recorded.of(Scope)[3].name] == "new\nline"


def test_the_first_scope_of_a_name_tells_the_line_that_entered_it(log: Path) -> None:
    @Trace("decorated")
    def decorated() -> None:
        pass

    with recording(log) as recorded:
        for _ in range(2):
            with Trace("here"):  # the line
                pass
        decorated()  # the call
    recorded = recorded()
    places = {stack.id: stack.frames[0] for stack in recorded.of(Stack)}
    first, second, call = recorded.of(Scope)
    assert recorded.texts[places[first.stack].code] == 'with Trace("here"):  # the line'
    assert second.stack == 0
    assert recorded.texts[places[call.stack].code] == "decorated()  # the call"


@pytest.mark.parametrize("recorded", [False, True])
def test_scopes_do_not_break_graphs_of_torch_compile(log: Path, recorded: bool) -> None:
    torch = pytest.importorskip("torch")

    def model(x):  # type: ignore[no-untyped-def]
        with StepTrace("step", step_num=1), Trace("forward", layer=1):
            return x * 2

    graphs = []

    def backend(graph, inputs):  # type: ignore[no-untyped-def]
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    try:
        with recording(log) if recorded else contextlib.nullcontext():
            compiled = torch.compile(model, backend=backend, fullgraph=True)
            for _ in range(3):
                assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
    finally:
        torch._dynamo.reset()
    assert len(graphs) == 1
