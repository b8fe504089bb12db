"""Programs that are frozen after their warm-up, by real frameworks: what compiles then is told, refused or recorded."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import processes
import pytest
import torch
from jax._src import monitoring
from recording import recording

import xlaprof
from xlaprof.analysis.run import Run
from xlaprof.events import FrozenCompile
from xlaprof.recording import trace
from xlaprof.text.quantities import duration

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    jax.clear_caches()
    yield
    torch._dynamo.reset()


def by_jax() -> Callable[[int], Any]:
    step = jax.jit(lambda batch: batch["x"].sum())
    return lambda size: step({"x": np.ones(size, np.float32)})


def by_torch_compile() -> Callable[[int], Any]:
    def step(batch: Any) -> Any:
        return batch["x"].sin().sum()

    compiled = torch.compile(step, backend="eager", dynamic=False)
    return lambda size: compiled({"x": torch.ones(size)})


def by_the_runtime() -> Callable[[int], Any]:
    import xlaprof.runtime as xr

    weight = torch.ones(3).to("xla")
    xr.sync()

    def step(size: int) -> Any:
        y = (torch.ones(size, 3).to("xla") * weight).sum()
        xr.sync()
        return y

    return step


EACH = pytest.mark.parametrize(
    ("make", "by", "argument"),
    [
        (by_jax, "jax", "the shape of batch['x'] went from f32[4] to f32[5]"),
        (by_torch_compile, "torch.compile", "shape of batch['x'] went from f32[4] to f32[5]"),
        (by_the_runtime, "xla", "shape changed from f32[4,3] to f32[5,3]"),
    ],
    ids=["jax", "torch.compile", "xla"],
)


@EACH
def test_what_is_compiled_after_warm_up_is_raised_where_it_is_called_and_the_program_goes_on(
    make: Any, by: str, argument: str
) -> None:
    step, found, raised = make(), [], []
    with xlaprof.frozen(after_steps=2, on_recompile="raise") as guard:
        for size in (4, 4, 4, 5, 4, 5):
            assert guard.is_frozen == (guard.steps >= 2)
            try:
                found.append(float(step(size)))
            except xlaprof.RecompileError as error:
                raised.append(error)
            guard.step()
    assert len(found) == 4
    assert len(set(found)) == 1
    assert len(raised) == 2  # it was not compiled the first time
    told = raised[1].compilation
    assert told is not None
    assert told.by == by
    assert argument in told.why
    assert told.frames[0].file == __file__
    assert argument in str(raised[1])
    assert f"{__file__}:{told.frames[0].line}" in str(raised[1])
    assert len(guard.compilations) == 2
    assert float(step(6)) != found[0]  # the guard is over


@EACH
def test_one_line_for_each_cause_and_the_program_is_not_changed(
    make: Any, by: str, argument: str, capsys: pytest.CaptureFixture[str]
) -> None:
    step = make()
    expected = [float(step(size)) for size in (4, 4, 5, 6)]
    torch._dynamo.reset()
    jax.clear_caches()
    step = make()
    with xlaprof.frozen(after_steps=1) as guard:
        found = []
        for size in (4, 4, 5, 6):
            found.append(float(step(size)))
            guard.step()
    assert found == expected
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("xlaprof:")]
    if by != "xla":  # there the graphs of both tests are known already
        assert len(lines) == 1
        assert "frozen after 1 steps, but in step 2" in lines[0]
        assert len(guard.compilations) == 2


def test_a_recording_has_events_and_the_report_a_finding_with_what_it_took(tmp_path: Path) -> None:
    step = by_jax()
    with recording(tmp_path / "run.log") as recorded, xlaprof.frozen(after_steps=3, on_recompile="record"):
        for i in range(6):
            with xlaprof.StepTrace("serve", step_num=i):
                step(4 if i < 4 else 4 + i)
    done = recorded()
    told = done.of(FrozenCompile)
    assert [(one.by, one.step, one.refused) for one in told] == [("jax", 4, False), ("jax", 5, False)]
    report = Run().feed_all(done.events).report()
    [finding] = [one for one in report.findings if one.kind == "frozen"]
    assert finding.count == 2
    assert finding.cost_s == 0
    assert finding.severity == "high"
    assert finding.place.file == __file__
    assert "The shape of batch['x'] went from f32[4] to f32[8]" in finding.cause
    whole = sum(one.cost_s for one in report.findings if one.kind == "recompile")
    assert f"these compilations took {duration(whole)}" in finding.cause
    merged = (Run().feed_all(done.events) + Run().feed_all(done.events)).report()
    assert [one.count for one in merged.findings if one.kind == "frozen"] == [4]


def test_nothing_of_the_programs_is_left_changed() -> None:
    def state() -> tuple[Any, ...]:
        logger = logging.getLogger("torch.__trace")
        callbacks = torch._dynamo.callback.callback_handler
        return (
            list(logger.handlers), logger.disabled, logger.level, list(callbacks.start_callbacks),
            monitoring.get_scalar_listeners() if hasattr(monitoring, "get_scalar_listeners") else
            list(monitoring._scalar_listeners), list(monitoring._event_duration_secs_listeners),
            torch._dynamo.eval_frame._stance.stance, jax.config.values.copy(), list(trace.step_ended),
        )  # fmt: skip

    before = state()
    with xlaprof.frozen(on_recompile="record"), xlaprof.frozen(on_recompile="record"):
        by_jax()(4)
        by_torch_compile()(4)
        assert state() != before
    assert state() == before


def test_a_decorated_function_counts_its_own_calls_alone() -> None:
    step, other = by_torch_compile(), by_torch_compile()
    guarded = xlaprof.frozen(after_steps=2, on_recompile="raise")(step)
    guarded(4), guarded(4)
    other(7)  # not its business
    with pytest.raises(xlaprof.RecompileError):
        guarded(5)
    assert len(guarded.frozen.compilations) == 1
    assert guarded.frozen.steps == 2
    guarded.frozen.__exit__(None, None, None)


def test_errors_are_raised_also_where_dynamo_suppresses_them_and_its_logging_was_set_up_anew() -> None:
    step = by_torch_compile()
    suppressed = torch._dynamo.config.patch(suppress_errors=True)
    with suppressed, xlaprof.frozen(after_steps=1, on_recompile="raise") as guard:
        step(4)
        guard.step()
        with pytest.raises(xlaprof.RecompileError, match="shape of batch"):
            step(5)
        logging.getLogger("torch.__trace").handlers.clear()
        with pytest.raises(xlaprof.RecompileError, match=r"torch\.compile compiles step"):
            step(6)
        assert float(step(4)) == pytest.approx(4 * np.sin(1), rel=1e-6)


def test_a_backward_pass_that_is_compiled_later_is_told_as_that() -> None:
    compiled = torch.compile(lambda x: (x.sin() * 2).sum(), backend="aot_eager")
    x = torch.ones(3, requires_grad=True)
    loss = compiled(x)
    with xlaprof.frozen(on_recompile="record") as guard:
        loss.backward()
        first = [one.function for one in guard.compilations]
        compiled(x).backward()
    assert set(first) <= {"a backward pass"}
    assert len(guard.compilations) == len(first)
    assert x.grad is not None


def test_what_jax_does_without_tracing_or_a_jitted_function_is_told_too() -> None:
    f = jax.jit(lambda x: x + 1)
    a = jnp.ones(3)
    with xlaprof.frozen(after_steps=1, on_recompile="record") as guard:
        f(a)
        guard.step()
        jax.eval_shape(f, jax.ShapeDtypeStruct((9,), np.float32))  # makes no program
        assert not guard.compilations
        f(jax.device_put(a, jax.devices()[0]))  # committed: compiled again without a trace
        [told] = guard.compilations
        assert "the device of x went from" in told.why
        f.lower(jnp.ones(8)).compile()
        assert "it is compiled ahead" in guard.compilations[-1].why


def test_another_threads_compilation_is_raised_there() -> None:
    step, seen = by_jax(), []

    def work() -> None:
        try:
            step(9)
        except xlaprof.RecompileError as error:
            seen.append(error)

    with xlaprof.frozen(on_recompile="raise"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"on_recompile": "explode"}, "not 'explode'"),
        ({"after_steps": -1}, "not -1"),
        ({"after_steps": 1.5}, "not 1.5"),
    ],
)
def test_other_arguments_are_refused_in_one_line(arguments: Any, message: str) -> None:
    with pytest.raises(xlaprof.RecordingError, match=message):
        xlaprof.frozen(**arguments)


def test_the_example_refuses_what_was_not_padded() -> None:
    done = processes.run("examples/frozen.py", cwd=ROOT)
    [line] = done.stdout.splitlines()
    assert "in step 6 torch.compile compiles score at " in line
    assert line.endswith("shape of tokens went from i64[64] to i64[50]")


def test_the_page_runs() -> None:
    text = (ROOT / "docs" / "frozen.md").read_text("utf-8")
    code = text.partition("```python\n")[2].partition("```")[0]
    done = processes.run("-c", code)
    assert "the shape of tokens went from i32[128] to i32[131]" in done.stdout
