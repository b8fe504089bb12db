"""Programs of JAX as they run: reads, uploads, steps, and when the device was busy."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import api
from jax._src.array import ArrayImpl
from recording import Recorded, recording

import xlaprof
from xlaprof.analysis.model import Finding, Report
from xlaprof.analysis.run import Run
from xlaprof.events import DeviceWait, Execute, Step, StepDigest, TransferFromDevice, TransferToDevice
from xlaprof.recording import recorder
from xlaprof.sources.jax.device import APART_NS
from xlaprof.sources.jax.sites import Site
from xlaprof.sources.jax.uploads import _of_the_host


def record(path: Path, program: Callable[[], Any]) -> Recorded:
    jax.clear_caches()
    with recording(path) as recorded:
        program()
    return recorded()


def report(recorded: Recorded) -> Report:
    return Run().feed_all(recorded.events).report()


@jax.jit
def large(x: Any) -> Any:
    return x @ x @ x, (x * x).sum()


@jax.jit
def small(x: Any) -> Any:
    return x + 1


READS = {
    "float": lambda x: float(x),
    "int": lambda x: int(x),
    "if": lambda x: 1 if x > 0 else 2,
    "item": lambda x: x.item(),
    "print": lambda x: f"{x}",
    "device_get": jax.device_get,
    "tolist": lambda x: x.tolist(),
    "repr": repr,
}


@pytest.mark.parametrize("how", READS)
def test_a_read_has_its_line_its_bytes_and_its_wait(how: str, tmp_path: Path) -> None:
    x = jnp.ones((900, 900))
    large(x)[1].block_until_ready()

    def program() -> None:
        for _ in range(3):
            _, total = large(x)
            READS[how](total)

    done = record(tmp_path / "run.log", program)
    reads = [one for one in done.of(TransferFromDevice) if one.bytes == 4 or how == "if"]
    assert len(reads) == 3
    assert all(one.wait == one.dur or one.wait == 0 for one in reads)
    assert {done.texts[one.op] for one in reads} == {"jax.Array: one number"}
    run = Run().feed_all(done.events)
    assert {run.resolve(one.stack).file for one in reads} == {__file__}


def test_a_value_that_is_there_already_is_read_without_a_wait_and_a_second_time_at_no_cost(tmp_path: Path) -> None:
    x = jnp.ones(2000)

    def program() -> None:
        y = small(x)
        while not y.is_ready():
            pass
        np.array(y._value)

    [read] = record(tmp_path / "run.log", program).of(TransferFromDevice)
    assert (read.wait, read.bytes) == (0, 8000)


def test_waits_are_told_by_line_and_the_watchers_own_are_not(tmp_path: Path) -> None:
    x = jnp.ones((900, 900))

    def program() -> None:
        for _ in range(4):
            jax.block_until_ready(large(x))
        large(x)[0].block_until_ready()
        jax.block_until_ready(large(x)[0])

    done = record(tmp_path / "run.log", program)
    assert len(done.of(DeviceWait)) == 6
    assert len({one.stack for one in done.of(DeviceWait)}) == 3


def test_the_device_is_busy_with_each_program_and_idle_gaps_have_the_hosts_line(tmp_path: Path) -> None:
    x = jnp.ones((1200, 1200))
    jax.block_until_ready(large(x))

    def program() -> None:
        for _ in range(12):
            jax.block_until_ready(large(x))
            time.sleep(0.03)  # the host does something else

    done = record(tmp_path / "run.log", program)
    runs = done.of(Execute)
    assert len(runs) == 12
    assert all(one.t <= one.start <= one.end for one in runs)
    assert sorted(one.start for one in runs) == [one.start for one in runs]
    busy = sum(one.end - one.start for one in runs)
    assert busy > 0
    found = report(done)
    assert found.idle.idle_s >= 10 * 0.025
    [gap] = [one for one in found.findings if one.kind == "idle_gap"]
    assert gap.place.code == "time.sleep(0.03)  # the host does something else"


@pytest.mark.usefixtures("one_by_one")
def test_values_of_the_host_are_uploads_at_each_call(tmp_path: Path) -> None:
    @jax.jit
    def f(batch: Any, lr: Any) -> Any:
        return batch["x"].sum() * lr

    def program() -> None:
        for step in range(6):
            f({"x": np.ones((10, 100), np.float32)}, 0.1 * step)

    done = record(tmp_path / "run.log", program)
    sent = done.of(TransferToDevice)
    assert sum(one.bytes for one in sent) == 6 * 4004
    assert sum(one.tensors for one in sent) == 12


@pytest.mark.usefixtures("one_by_one")
def test_steps_are_found_where_a_function_repeats(tmp_path: Path) -> None:
    @jax.jit
    def init(seed: Any) -> Any:
        return seed * 2.0

    @jax.jit
    def train(w: Any, x: Any) -> Any:
        return w + x.sum()

    @jax.jit
    def evaluate(w: Any) -> Any:
        return w * 2

    def program() -> None:
        w = init(1.0)
        for _ in range(2):
            for _ in range(20):
                w = train(w, jnp.ones(3))
            evaluate(w)

    done = record(tmp_path / "run.log", program)
    steps = report(done).steps
    assert [one.name for one in steps] == ["train"]
    assert steps[0].count in range(34, 40)


@pytest.mark.usefixtures("one_by_one")
def test_the_steps_of_a_function_go_on_in_its_next_stage_whoever_calls_it(tmp_path: Path) -> None:
    """Each stage of a training makes its step anew, with another learning rate: three functions at one line."""

    def stage(w: Any, rate: float) -> Any:
        @jax.jit
        def train(w: Any) -> Any:
            return w - rate * w

        for _ in range(20):
            w = train(w)
        return w

    def program() -> None:
        w = stage(jnp.ones(3), 0.1)
        w = stage(w, 0.01)
        stage(w, 0.001)

    (steps,) = report(record(tmp_path / "run.log", program)).steps
    assert steps.name == "train"
    assert steps.count in range(56, 60)


@pytest.mark.usefixtures("one_by_one")
def test_what_the_program_names_counts_instead(tmp_path: Path) -> None:
    def annotated() -> None:
        for i in range(8):
            with jax.profiler.StepTraceAnnotation("mine", step_num=i):
                small(jnp.ones(3))

    def named() -> None:
        for i in range(8):
            with xlaprof.StepTrace("ours", step_num=i):
                small(jnp.ones(3))

    for name, program in (("mine", annotated), ("ours", named)):
        done = record(tmp_path / f"{name}.log", program)
        steps = done.of(Step)
        assert [(done.texts[one.name], one.num) for one in steps] == [(name, i) for i in range(8)]
        assert not done.of(StepDigest)


def test_a_loss_read_in_every_step_is_a_finding_in_the_words_of_jax(tmp_path: Path) -> None:
    @jax.jit
    def train_step(w: Any, x: Any) -> Any:
        y = x @ w
        return w - 0.01 * (x.T @ y) / y.size, (y * y).mean()

    def program() -> None:
        w, x = jnp.ones((700, 700)), jnp.ones((700, 700))
        losses = []
        for _ in range(30):
            w, loss = train_step(w, x)
            losses.append(float(loss))  # here
            sum(range(200_000))  # the next batch, which the device waits for

    found = report(record(tmp_path / "run.log", program))
    finding: Finding
    [finding] = [one for one in found.findings if one.kind == "transfer"]
    assert finding.place.code == "losses.append(float(loss))  # here"
    assert "every step" in finding.cause
    assert "barrier" not in finding.advice + finding.remedy
    assert "torch" not in finding.advice + finding.remedy
    assert finding.count >= 26


def test_calls_that_come_fast_are_told_together_and_counted_all(tmp_path: Path) -> None:
    x = jnp.ones(3)
    small(x)

    def program() -> None:
        y = x
        for _ in range(5_000):
            y = small(y)

    done = record(tmp_path / "run.log", program)
    assert sum(one.calls for one in done.of(Execute)) == 5_000
    assert len(done.of(Execute)) < 600
    assert sum(there.count for there in Run().feed_all(done.events).executed_at.values()) == 5_000


def test_quick_calls_are_counted_at_their_line_and_by_their_function_in_whatever_order(tmp_path: Path) -> None:
    """Calls are compared with those that came before: at another line, of another function, from another thread."""

    @jax.jit
    def more(x: Any) -> Any:
        return x + 1

    @jax.jit
    def less(x: Any) -> Any:
        return x - 1

    def apply(function: Any, x: Any) -> Any:
        return function(x)  # either

    def here(x: Any) -> Any:
        return small(x)  # the same instruction as

    def there(x: Any) -> Any:
        return small(x)  # that of the first

    start = jnp.ones(3)
    for function in (small, more, less):
        function(start)

    def elsewhere() -> None:
        for _ in range(700):
            small(start)  # in a thread

    def program() -> None:
        beside = threading.Thread(target=elsewhere)
        beside.start()
        x = start
        for turn in range(1_200):
            x = here(there(x))
            x = apply(more if turn % 3 else less, x)
            if turn % 4:
                x = small(x)  # often
            x = small(x)  # always
        for _ in range(5):
            x = here(x)
        beside.join()

    with recording(tmp_path / "run.log") as recorded:
        program()
    done = recorded()
    run = Run().feed_all(done.events)
    calls = Counter[tuple[str, int]]()
    for one in done.of(Execute):
        calls[run.resolve(one.stack).code, one.program] += one.calls
    told = sorted((code, count) for (code, _), count in calls.items())
    assert told == [
        ("return function(x)  # either", 400),
        ("return function(x)  # either", 800),
        ("return small(x)  # that of the first", 1_200),
        ("return small(x)  # the same instruction as", 1_205),
        ("small(start)  # in a thread", 700),
        ("x = small(x)  # always", 1_200),
        ("x = small(x)  # often", 900),
    ]


def test_a_function_that_was_called_quickly_is_let_go_with_the_next_turn_of_the_writer(tmp_path: Path) -> None:
    with xlaprof.record(tmp_path / "run.log"):
        short = jax.jit(lambda x: x + 1)
        x = jnp.ones(3)
        for _ in range(300):
            x = short(x)
        left = weakref.ref(short)
        del short
        assert recorder.active is not None
        recorder.active.flush()
        gc.collect()
        assert left() is None
        for _ in range(300):
            x = small(x)


def test_calls_are_counted_apart_where_a_compilation_comes_between(tmp_path: Path) -> None:
    @jax.jit
    def mean(image: Any) -> Any:
        return image.mean()

    sizes = [18] * 200 + [25] * 100 + [18] * 50

    def program() -> None:
        for size in sizes:
            mean(np.ones((4, size, size), np.float32))

    done = record(tmp_path / "run.log", program)
    assert sum(one.calls for one in done.of(Execute)) == len(sizes)
    assert len(sizes) - 64 < sum(one.tensors for one in done.of(TransferToDevice)) <= len(sizes)


@pytest.mark.usefixtures("one_by_one")
def test_operations_outside_of_jitted_functions_have_the_line_that_runs_them(tmp_path: Path) -> None:
    def program() -> None:
        x = jnp.ones(5)
        for _ in range(6):
            y = x + 1  # first
            x = y + 1  # second

    done = record(tmp_path / "run.log", program)
    run = Run().feed_all(done.events)
    lines = [run.resolve(one.stack).code for one in done.of(Execute)]
    assert lines.count("y = x + 1  # first") >= 4
    assert lines.count("x = y + 1  # second") >= 4


def test_the_pace_follows_the_calls() -> None:
    from xlaprof.sources.jax.device import Device

    site, now = Site(1, "f", (), 0, True), 1_000_000_000
    for _ in range(20):
        Device._pace(None, site, now)  # type: ignore[arg-type]
        now += site.every * 5_000
    assert site.every == 64
    Device._pace(None, site, now + 64 * APART_NS)  # type: ignore[arg-type]
    assert (site.every, site.skip) == (1, 0)


def test_what_is_of_the_host() -> None:
    arguments = ({"x": np.ones(4, np.float32), "y": jnp.ones(3)}, 1.0, "name", [np.float64(2.0)], (True, None))
    assert _of_the_host(arguments, 2) == (16 + 4 + 8 + 4, 4)


def test_nothing_is_left_behind_and_results_are_the_same(tmp_path: Path) -> None:
    annotation = jax.profiler.StepTraceAnnotation

    def state() -> tuple[Any, ...]:
        names = ("_value", "block_until_ready")
        return (
            api._post_hook_state.get_global(), *(vars(ArrayImpl).get(name) for name in names), jax.block_until_ready,
            *(vars(annotation).get(name) for name in ("__init__", "__enter__", "__exit__")),
        )  # fmt: skip

    before = state()
    expected = float(large(jnp.ones((20, 20)))[1])
    with xlaprof.record(tmp_path / "run.log"):
        assert state() != before
        assert float(large(jnp.ones((20, 20)))[1]) == expected
        with annotation("step", step_num=1):
            pass
    assert state() == before


@pytest.mark.usefixtures("one_by_one")
def test_a_check_for_nan_in_the_slot_is_told_as_a_read_and_given_back(tmp_path: Path) -> None:
    """``jax_debug_nans`` looks at all that a call returns, which is observed as without it."""

    def program() -> None:
        x = jnp.ones(7)
        for _ in range(40):
            x = small(x)

    divide = jax.jit(lambda x: x / x)
    divide(jnp.ones(()))
    with jax.debug_nans(True):
        theirs = api._post_hook_state.get_local()
        done = record(tmp_path / "run.log", program)
        assert api._post_hook_state.get_local() is theirs
        with pytest.raises(FloatingPointError), xlaprof.record(tmp_path / "nan.log"):
            divide(jnp.zeros(()))
        assert api._post_hook_state.get_local() is theirs
    run = Run().feed_all(done.events)
    lines = [run.resolve(one.stack).code for one in done.of(TransferFromDevice)]
    assert lines.count("x = small(x)") >= 38
    assert sum(one.calls for one in done.of(Execute) if run.resolve(one.stack).code == "x = small(x)") == 40


def test_a_check_that_begins_while_it_is_recorded_goes_on_afterwards(tmp_path: Path) -> None:
    before = api._post_hook_state.get_local()
    with xlaprof.record(tmp_path / "run.log"):
        with jax.debug_nans(True):
            theirs = api._post_hook_state.get_local()
            small(jnp.ones(11))
            assert api._post_hook_state.get_local() is not theirs
        jax.config.update("jax_debug_nans", True)
        theirs = api._post_hook_state.get_global()
        small(jnp.ones(13))
    try:
        assert api._post_hook_state.get_global() is theirs
        assert api._post_hook_state.get_local() is before or api._post_hook_state.get_local() is None
    finally:
        jax.config.update("jax_debug_nans", False)


@pytest.mark.usefixtures("one_by_one")
def test_a_slot_that_was_emptied_is_taken_again_with_the_next_compilation(tmp_path: Path) -> None:
    def program() -> None:
        jax.config.update("jax_debug_nans", False)  # this empties it, and leaving the context the thread's own
        with jax.debug_nans(False):
            pass
        x = jnp.ones(7)
        for _ in range(6):
            small(x)

    done = record(tmp_path / "run.log", program)
    run = Run().feed_all(done.events)
    assert sum(one.calls for one in done.of(Execute) if run.resolve(one.stack).code == "small(x)") == 6
    assert api._post_hook_state.get_local() is None
    again = record(
        tmp_path / "again.log", lambda: [small(jnp.ones(7)) for _ in range(6)]
    )  # it stays so: another recording
    assert sum(one.calls for one in again.of(Execute)) >= 6


@pytest.mark.usefixtures("one_by_one")
def test_buffers_that_are_given_up_and_containers_of_any_kind(tmp_path: Path) -> None:
    step = jax.jit(lambda s: {"w": s["w"] * 2, "deep": [(s["w"].sum(),)]}, donate_argnums=0)
    only = jax.jit(lambda w: w @ w, donate_argnums=0)

    def program() -> Any:
        state = {"w": jnp.ones((300, 300)) / 300, "deep": [(jnp.zeros(()),)]}
        w = jnp.ones((300, 300)) / 300
        for _ in range(20):
            state = step({"w": state["w"], "deep": state["deep"]})
            w = only(w)
        return float(w.sum()), float(state["deep"][0][0])

    done = record(tmp_path / "run.log", program)
    assert done.of(Execute)
    assert not [one for one in done.of(Execute) if one.error]


def test_a_program_is_seen_busy_at_its_own_line_though_the_next_call_is_given_its_smallest_result(
    tmp_path: Path,
) -> None:
    """A count of steps goes from call to call with the state, and is as small as the loss."""
    step = jax.jit(lambda n, w: (n + 1, (w @ w) / 700, w.sum()), donate_argnums=(0, 1))
    other = jax.jit(lambda k: k * 3 + 1)

    def program() -> Any:
        n, w, k = jnp.zeros((), jnp.int32), jnp.ones((700, 700)), jnp.ones(())
        for _ in range(30):
            k = other(k)
            n, w, loss = step(n, w)  # here
        return float(loss)

    run = Run().feed_all(record(tmp_path / "run.log", program).events)
    ran = {run.names.place(stack).code: one.ns for stack, one in run.executed_at.items()}
    assert ran["n, w, loss = step(n, w)  # here"] > 5 * ran["k = other(k)"]
