"""Programs of JAX, each with a reason to be compiled again: the events and the report name it, at the user's line."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import monitoring

import xlaprof
from tests.sources.jitted import Tell, told
from xlaprof.analysis.early_warnings import EarlyWarnings
from xlaprof.analysis.places import short
from xlaprof.cli import main
from xlaprof.events import Compiling, JitCompile, Source


@pytest.fixture
def tell(tmp_path: Path) -> Tell:
    return functools.partial(told, tmp_path / "run.log")


def test_a_batch_of_other_sizes_is_named_as_the_program_writes_it(tell: Tell) -> None:
    @jax.jit
    def train_step(state: Any, batch: Any) -> Any:
        return {"w": state["w"] - batch["x"].T @ (batch["x"] @ state["w"] - batch["y"])}

    def train() -> None:
        state = {"w": jnp.zeros((8, 1))}
        for step in range(6):
            rows = 16 + 3 * (step % 3)
            batch = {"x": np.ones((rows, 8), np.float32), "y": np.ones((rows, 1), np.float32)}
            state = train_step(state, batch)  # here

    run = tell(train)
    first, second, third = run.changes("train_step")
    assert first == []
    x, y = second
    assert (x.kind, x.name, x.old, x.new, x.dim) == ("shape", "batch['x']", "f32[16,8]", "f32[19,8]", 0)
    assert (y.kind, y.name, y.old, y.new) == ("shape", "batch['y']", "f32[16,1]", "f32[19,1]")
    assert {third[0].old, third[0].new} <= {"f32[16,8]", "f32[19,8]", "f32[22,8]"}
    finding = run.finding
    assert finding.kind == "recompile"
    assert finding.count == 2
    assert finding.place.code == "state = train_step(state, batch)  # here"
    assert "The shape of batch['x'] (and of batch['y']) changed from f32[16,8] to f32[19,8]" in finding.cause
    assert (
        "pad dimension 0 of batch['x'] (and of batch['y']) to one size (22 was the largest so far)," in finding.advice
    )
    assert finding.also  # the definition


def test_what_is_being_compiled_is_told_while_it_lasts(tell: Tell) -> None:
    """Of a function that the program jits: operations outside of it are compiled in no time."""

    @jax.jit
    def train_step(x: Any) -> Any:
        return jnp.sin(x) @ x

    recorded = tell(lambda: train_step(jnp.ones((3, 3)) * 2)).recorded
    begun = recorded.of(Compiling)
    assert [(recorded.texts[one.func], one.phase) for one in begun] == [
        ("train_step", "lowering"),
        ("train_step", "XLA"),
    ]
    [made] = [one for one in recorded.of(JitCompile) if recorded.texts[one.func] == "train_step"]
    assert {one.t - one.spent for one in begun} == {made.t}
    assert made.t < begun[0].t < begun[1].t < made.t + made.dur
    assert {one.stack for one in begun} == {made.stack}


def test_the_phases_are_parts_of_the_whole_and_the_accounts_have_it(tell: Tell) -> None:
    @jax.jit
    def f(x: Any) -> Any:
        for _ in range(30):
            x = jnp.sin(x) @ x
        return x

    run = tell(lambda: f(np.ones((4, 4), np.float32)))
    [program] = run.of("f")
    assert 0 < program.trace + program.lower + program.backend <= program.dur
    assert run.report.jax.graphs == len(run.programs)
    assert run.report.jax.total_s == pytest.approx(sum(one.dur for one in run.programs) / 1e9)
    assert sum(charge.seconds for charge in run.report.jax.charges) == pytest.approx(run.report.jax.total_s)
    assert not run.report.findings
    assert run.report.observed


def test_a_shorter_last_batch_has_advice_of_its_own(tell: Tell) -> None:
    @jax.jit
    def evaluate(x: Any) -> Any:
        return x.sum()

    def program() -> None:
        for start in range(0, 100, 32):
            evaluate(np.ones((min(32, 100 - start), 3), np.float32))

    assert "Pad the last batch to 32 rows" in tell(program).finding.advice


def test_buckets_and_an_evaluation_of_another_size_are_no_findings(tell: Tell) -> None:
    @jax.jit
    def predict(tokens: Any) -> Any:
        return tokens * 2

    def program() -> None:
        for length in (64, 128, 256, 64, 512):
            predict(np.ones((2, length), np.float32))
        predict(np.ones((7, 100), np.float32))  # at another line

    run = tell(program)
    assert len(run.of("predict")) == 5
    assert run.report.findings == ()
    assert any(charge.what == "necessary" for charge in run.report.jax.charges)


def test_buckets_are_advised_where_sizes_lie_far_apart(tell: Tell) -> None:
    @jax.jit
    def predict(tokens: Any) -> Any:
        return tokens * 2

    finding = tell(lambda: [predict(np.ones((2, length), np.float32)) for length in (13, 70, 29, 100, 57)]).finding
    assert "to one size (100 was the largest so far), or to a few (buckets: 32, 64, 128)" in finding.advice


def test_a_number_as_static_argument_has_a_program_for_each_value(tell: Tell) -> None:
    @functools.partial(jax.jit, static_argnames="lr")
    def update(w: Any, lr: float) -> Any:
        return w * (1 - lr)

    def program() -> None:
        w = jnp.ones(3)
        for step in range(5):
            w = update(w, lr=0.5**step)

    run = tell(program)
    changes = [[(one.kind, one.name, one.new) for one in each] for each in run.changes("update")]
    assert changes[1:3] == [[("static", "lr", "0.5")], [("static", "lr", "0.25")]]
    assert "take lr out of static_argnums or static_argnames" in run.finding.advice

    traced = jax.jit(update.__wrapped__)  # as the advice says
    fixed = tell(lambda: [traced(jnp.ones(3), 0.5**step) for step in range(5)])
    assert len(fixed.of("update")) == 1
    assert not fixed.report.findings


def test_a_mode_as_static_argument_is_meant(tell: Tell) -> None:
    @functools.partial(jax.jit, static_argnums=1)
    def apply(x: Any, train: bool) -> Any:
        return x * 2 if train else x

    run = tell(lambda: [apply(jnp.ones(3), mode) for mode in (True, False, True)])
    assert len(run.of("apply")) == 2
    assert run.report.findings == ()


def test_a_function_made_anew_in_the_loop_is_told_to_be_hoisted(tell: Tell) -> None:
    def program() -> None:
        x = jnp.ones(3)
        for scale in range(4):
            x = jax.jit(lambda v: v * 1.5)(x)  # a new function each time
            assert scale >= 0

    run = tell(program)
    assert [[one.kind for one in changes] for changes in run.changes("<lambda>")] == [[], *[["function"]] * 3]
    assert run.finding.count == 3
    assert "call jax.jit on it once, outside the loop" in run.finding.advice


def test_a_weak_type_is_told_from_another_dtype(tell: Tell) -> None:
    @jax.jit
    def step(carry: Any) -> Any:
        return carry * np.float32(0.9)

    def program() -> None:
        carry = 1.0
        for _ in range(4):
            carry = step(carry)
        step(jnp.ones((), jnp.int32))

    weak, dtype = tell(program).changes("step")[1:]
    assert [one.kind for one in weak] == ["weak type"]
    assert weak[0].name == "carry"
    assert [(one.kind, one.new) for one in dtype] == [("dtype", "i32[]")]


def test_all_that_is_weakly_typed_in_the_first_call_is_to_have_a_dtype(tell: Tell) -> None:
    def program() -> None:
        step = jax.jit(
            lambda tank: {"level": tank["level"] * np.float32(0.9), "valve": tank["valve"] * np.float32(1.1)}
        )
        tank = {"level": jnp.asarray(3.0), "valve": jnp.asarray(0.5)}
        for _ in range(4):
            tank = step(tank)

    finding = tell(program).finding
    assert "Give tank['level'] (and tank['valve']) one dtype from the first call on" in finding.advice


def test_another_dtype_at_another_line_is_converted_to_what_came_first(tell: Tell) -> None:
    @jax.jit
    def score(ids: Any, fields: Any) -> Any:
        return fields * ids

    def program() -> None:
        for rows in (8, 32, 128):  # the warm-up
            score(np.ones(rows, np.int32), np.ones(rows, np.float32))
        for ids, fields in ((np.uint16, np.float16), (np.uint32, np.float32)):
            for rows in (32, 8):
                score(np.ones(rows, ids), np.ones(rows, fields))

    run = tell(program)
    first = run.changes("score")[3]
    assert [(one.kind, one.name, one.old, one.new) for one in first] == [
        ("dtype", "ids", "i32[32]", "u16[32]"),
        ("dtype", "fields", "f32[32]", "f16[32]"),
    ]
    [finding] = [one for one in run.report.findings if "dtype" in one.cause]
    assert finding.count == 4
    assert "ids.astype('int32'), fields.astype('float32')" in finding.advice


def test_a_number_of_turns_as_static_argument_is_advised_to_be_traced(tell: Tell) -> None:
    @functools.partial(jax.jit, static_argnames="turns")
    def advance(x: Any, turns: int) -> Any:
        for _ in range(turns):
            x = jnp.sin(x)
        return x

    x = jnp.ones(3)  # on the device: nothing is uploaded that a busy machine could make dear
    finding = tell(lambda: [advance(x, turns=turns) for turns in range(5)]).finding
    assert finding.count == 4
    assert "jax.lax.fori_loop(0, turns, ...) takes an array" in finding.advice

    traced = jax.jit(lambda x, turns: jax.lax.fori_loop(0, turns, lambda _, y: jnp.sin(y), x))  # as the advice says
    fixed = tell(lambda: [traced(x, turns) for turns in range(5)])
    assert len(fixed.of("<lambda>")) == 1


def test_sizes_of_two_phases_are_meant(tell: Tell) -> None:
    @jax.jit
    def train(w: Any, image: Any) -> Any:
        return w + image.mean()

    def program(sizes: list[int]) -> None:
        w = jnp.zeros(())
        for step, size in enumerate(sizes):
            with xlaprof.StepTrace("train", step_num=step):
                w = train(w, np.full((4, size, size), step, np.float32))

    run = tell(lambda: program([18] * 30 + [25] * 30))
    assert len(run.of("train")) == 2
    assert run.report.findings == ()
    assert tell(lambda: program([18, 25, 19, 31] * 10)).finding.count == 3


def test_a_tree_with_another_entry_is_named_by_the_entry(tell: Tell) -> None:
    @jax.jit
    def loss(params: Any) -> Any:
        return sum(jax.tree.leaves(params))

    def program() -> None:
        for extra in ({}, {"bias": 1.0}):
            loss({"layer": {"kernel": 2.0, **extra}})

    [change] = tell(program).changes("loss")[1]
    assert (change.kind, change.name) == ("structure", "params['layer']")
    assert change.new == "params['layer']['bias'] f32[]"


def test_where_the_configuration_changed_once_later_changes_are_still_told_right(tell: Tell) -> None:
    """JAX's own explanation blames the configuration from then on."""

    @jax.jit
    def f(x: Any) -> Any:
        return x @ x

    def program() -> None:
        f(np.ones((2, 2), np.float32))
        with jax.default_matmul_precision("highest"):
            f(np.ones((2, 2), np.float32))
        f(np.ones((3, 3), np.float32))

    _, config, shape = tell(program).changes("f")
    assert [one.kind for one in config] == ["config"]
    assert "matmul_precision" in config[0].name
    assert [(one.kind, one.old, one.new) for one in shape] == [("shape", "f32[2,2]", "f32[3,3]")]


def test_other_options_and_cleared_caches_are_told(tell: Tell) -> None:
    def f(x: Any) -> Any:
        return x + 1

    def program() -> None:
        jax.jit(f)(jnp.ones(3))
        jax.jit(f, donate_argnums=0)(jnp.ones(3))
        jax.clear_caches()
        jax.jit(f, donate_argnums=0)(jnp.ones(3))

    _, options, evicted = tell(program).changes("f")
    assert [one.kind for one in options] == ["options"]
    assert [one.kind for one in evicted] == ["evicted"]


def test_operations_outside_of_jit_belong_to_their_line(tell: Tell) -> None:
    def program() -> None:
        for rows in range(5, 27, 2):
            outside = jnp.cumsum(jnp.ones(rows)) * 2
            assert outside.shape == (rows,)

    run = tell(program)
    assert all(one.code == 0 for one in run.programs)
    assert {finding.place.code for finding in run.report.findings} == {"outside = jnp.cumsum(jnp.ones(rows)) * 2"}


def test_a_program_made_while_another_is_traced_counts_once(tell: Tell) -> None:
    @jax.jit
    def outer(x: Any) -> Any:
        with jax.ensure_compile_time_eval():  # runs now
            table = jax.jit(lambda v: v * 3)(np.ones(3, np.float32))
        return x + table

    run = tell(lambda: outer(np.ones(3, np.float32)))
    [inner], [whole] = run.of("<lambda>"), run.of("outer")
    assert inner.t > whole.t
    assert whole.trace < whole.dur
    assert run.report.jax.total_s <= run.report.run.wall_s


def test_compiling_ahead_and_a_trace_that_raises(tell: Tell) -> None:
    @jax.jit
    def bad(x: Any) -> Any:
        raise ValueError("no")

    def program() -> None:
        jax.jit(lambda x: x + 1).lower(np.ones(3, np.float32)).compile()
        with pytest.raises(ValueError, match="no"):
            bad(np.ones(3, np.float32))
        jax.jit(lambda x: x - 1)(np.ones(3, np.float32))

    run = tell(program)
    assert [one.known for one in run.of("<lambda>")] == [False, True]
    assert run.of("bad") == []


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("never")

    def __hash__(self) -> int:
        return 7


def test_a_static_argument_that_cannot_be_printed_breaks_nothing(tell: Tell) -> None:
    f = jax.jit(lambda x, how: x, static_argnums=1)
    run = tell(lambda: [f(np.ones(2, np.float32), Unprintable()) for _ in range(2)])
    assert all("never" not in json.dumps(str(one.changes)) for one in run.programs)
    assert len(run.of("<lambda>")) == 2


def test_jax_is_left_as_it_was(tmp_path: Path) -> None:
    def listeners() -> tuple[int, ...]:
        kinds = (monitoring.get_event_duration_listeners, monitoring.get_event_listeners)
        return tuple(len(kind()) for kind in (*kinds, monitoring.get_scalar_listeners))

    before = listeners()
    with xlaprof.record(tmp_path / "run.log"):
        assert listeners() != before
        jax.jit(lambda x: x + 1)(np.ones(3))
    assert listeners() == before


def test_the_runtimes_own_programs_are_not_jaxs(tell: Tell) -> None:
    import torch

    def program() -> None:
        x = torch.ones(3, device="xla")
        (x + 1).cpu()

    import xlaprof.runtime  # noqa: F401

    run = tell(program)
    assert run.programs == []
    assert "jax" not in {source.name for source in run.recorded.of(Source)}


def test_gates_and_warnings_count_programs_of_jax(tmp_path: Path) -> None:
    f = jax.jit(lambda x: x * 2)

    def program() -> None:
        for rows in range(3, 16):
            f(np.ones((rows, 5), np.float32))

    run = told(tmp_path / "run.log", program)
    warnings = EarlyWarnings()
    [warning] = [text for event in run.recorded.events if (text := warnings.feed(event))]
    assert warning.startswith("JAX compiled <lambda> again 10 times (called at ")
    assert warning.endswith("last, x went from f32[12,5] to f32[13,5]")
    for limit in ("--max-recompiles=3", "--max-compiles=3", "--max-compile-time=1ms"):
        assert main(("check", str(tmp_path / "run.log"), "--no-config", limit)) == 1
    assert main(("check", str(tmp_path / "run.log"), "--no-config", "--max-recompiles=100")) == 0


def test_functions_and_operations_that_are_dropped_together_are_one_finding(tell: Tell) -> None:
    first = jax.jit(lambda x: x * 2)
    second = jax.jit(lambda x: x + 3)

    def program() -> None:
        for _ in range(4):
            first(np.ones(3, np.float32))
            second(np.ones(3, np.float32))
            jnp.cumsum(np.ones(5, np.float32))
            release()

    def release() -> None:
        """Memory, as somebody thought."""
        jax.clear_caches()  # here

    run = tell(program)
    (finding,) = (one for one in run.report.findings if one.kind == "recompile")
    assert finding.place.code == "jax.clear_caches()  # here", "what is to be changed"
    assert f"at {short(finding.place)}" in finding.cause
    assert {one.code for one in finding.also} >= {"first(np.ones(3, np.float32))", "second(np.ones(3, np.float32))"}
    dropped = [one for one in run.programs if one.changes and one.changes[0].kind == "evicted"]
    assert {bool(one.code) for one in dropped} == {True, False}
    assert finding.count == len(dropped)
    assert "compiled again 6 times" in finding.cause
    assert "outside of any jitted function" in finding.cause
    assert finding.cost_s == pytest.approx(sum(one.dur for one in dropped) / 1e9)


def test_a_list_that_begins_empty_and_grows_is_one_finding(tell: Tell) -> None:
    @jax.jit
    def step(state: Any) -> Any:
        return state["w"] * 2

    def program() -> None:
        state: dict[str, Any] = {"w": jnp.ones(3)}
        for turn in range(6):
            step(state)
            state.setdefault("seen", []).append(np.float32(turn))

    run = tell(program)
    assert run.finding.count == 5
    assert "step was compiled again 5 times" in run.finding.cause
    assert "is longer in each call" in run.finding.advice
