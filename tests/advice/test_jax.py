"""Advice on programs that JAX makes again: each piece is taken, and the programs are fewer by what it promised."""

from __future__ import annotations

import dataclasses
import itertools
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from recording import recording

from tests.advice import jitted
from xlaprof.analysis.model import Finding
from xlaprof.analysis.run import Run
from xlaprof.events import JitCompile, TransferFromDevice


class Case(NamedTuple):
    """A program with a mistake, the words of the advice on it, and the program after it."""

    words: str
    wrong: Callable[[], Any]
    right: Callable[[], Any]


def rows(count: int, columns: int = 3) -> Any:
    return np.ones((count, columns), np.float32)


def mean(x: Any, mask: Any = None) -> Any:
    return x.mean() if mask is None else (x * mask[:, None]).sum() / (mask.sum() * x.shape[1])


def any_sizes() -> None:
    score = jax.jit(mean)
    for count in (11, 13, 17, 19):
        score(rows(count))


def padded() -> None:
    score = jax.jit(mean)
    for count in (11, 13, 17, 19):
        score(np.pad(rows(count), ((0, 20 - count), (0, 0))), np.arange(20) < count)


def short_last_batch() -> None:
    score = jax.jit(mean)
    for count in (16, 16, 16, 5):
        score(rows(count))


def without_last_batch() -> None:
    score = jax.jit(mean)
    for count in (16, 16, 16, 5):
        if count == 16:
            score(rows(count))


def growing_cache() -> None:
    attend = jax.jit(lambda cache, query: cache @ query)
    cache = rows(1)
    for _ in range(4):
        attend(cache, np.ones(3, np.float32))
        cache = np.concatenate([cache, rows(1)])


def fixed_cache() -> None:
    @jax.jit
    def attend(cache: Any, query: Any, position: Any) -> Any:
        cache = jax.lax.dynamic_update_slice(cache, query[None], (position, 0))
        return cache, (cache @ query).sum()

    cache = np.zeros((8, 3), np.float32)
    for position in range(4):
        cache, _ = attend(cache, np.ones(3, np.float32), position)


def static_rate() -> None:
    update = jax.jit(lambda w, lr: w * (1 - lr), static_argnames="lr")
    for step in range(1, 5):
        update(rows(2), lr=0.5**step)


def traced_rate() -> None:
    update = jax.jit(lambda w, lr: w * (1 - lr))
    for step in range(1, 5):
        update(rows(2), lr=0.5**step)


def static_names() -> None:
    blend = jax.jit(lambda x, weights: x * weights[0] + weights[1], static_argnums=1)
    for step in range(5):
        blend(rows(2), (step, 1))


def names_as_array() -> None:
    blend = jax.jit(lambda x, weights: x * weights[0] + weights[1])
    for step in range(5):
        blend(rows(2), np.asarray((step, 1), np.float32))


def ranks() -> None:
    f = jax.jit(lambda x: x * 2)
    for x in (rows(3), rows(3)[None], rows(3)[None, None]):
        f(x)


def one_rank() -> None:
    f = jax.jit(lambda x: x * 2)
    for x in (rows(3), rows(3)[None], rows(3)[None, None]):
        f(x.reshape(1, 1, 3, 3))


def dtypes() -> None:
    f = jax.jit(lambda x: x * 2)
    for dtype in (np.float32, np.int32, np.float16):
        f(rows(3).astype(dtype))


def one_dtype() -> None:
    f = jax.jit(lambda x: x * 2)
    for dtype in (np.float32, np.int32, np.float16):
        f(rows(3).astype(dtype).astype("float32"))


def weak_carry() -> None:
    f = jax.jit(lambda carry: carry * np.float32(2))
    carry: Any = 1.0
    for _ in range(3):
        carry = f(carry)


def strong_carry() -> None:
    f = jax.jit(lambda carry: carry * np.float32(2))
    carry: Any = np.ones((), np.float32)
    for _ in range(3):
        carry = f(carry)


def other_entries() -> None:
    f = jax.jit(lambda batch: sum(x.sum() for x in batch.values()))
    for extra in ({}, {"mask": rows(2)}, {"weight": rows(2)}):
        f({"x": rows(2), **extra})


def same_entries() -> None:
    f = jax.jit(lambda batch: sum(x.sum() for x in batch.values()))
    for extra in ({}, {"mask": rows(2)}, {"weight": rows(2)}):
        f({"x": rows(2), "mask": 0 * rows(2), "weight": 0 * rows(2), **extra})


def new_functions() -> None:
    for scale in range(4):
        jax.jit(lambda x, scale=scale: x * scale)(rows(2))


def one_function() -> None:
    f = jax.jit(lambda x, scale: x * scale)
    for scale in range(4):
        f(rows(2), scale)


def _step(x: Any) -> Any:
    return x + 1


def other_options() -> None:
    for donated in ((), (0,)):
        jax.jit(_step, donate_argnums=donated)(jnp.asarray(rows(2)))


def one_set_of_options() -> None:
    step = jax.jit(_step, donate_argnums=(0,))
    for _ in range(2):
        step(jnp.asarray(rows(2)))


def other_configuration() -> None:
    f = jax.jit(lambda x: x @ x.T)
    for precision in ("default", "highest", "high"):
        with jax.default_matmul_precision(precision):
            f(rows(2))


def one_configuration() -> None:
    f = jax.jit(lambda x: x @ x.T)
    with jax.default_matmul_precision("highest"):
        for _ in range(3):
            f(rows(2))


def cleared() -> None:
    f = jax.jit(lambda x: x - 1)
    for _ in range(3):
        f(rows(2))
        jax.clear_caches()


def not_cleared() -> None:
    f = jax.jit(lambda x: x - 1)
    for _ in range(3):
        f(rows(2))


def outside() -> None:
    for count in range(3, 16):
        jnp.cumsum(rows(count), axis=0)


def with_numpy() -> None:
    for count in range(3, 16):
        np.cumsum(rows(count), axis=0)


def two_dtypes() -> None:
    f = jax.jit(lambda x, y: x * 2 + y)
    for dtype in (np.float32, np.int32, np.float16):
        f(rows(3).astype(dtype), rows(3).astype(dtype))


def two_of_one_dtype() -> None:
    f = jax.jit(lambda x, y: x * 2 + y)
    for dtype in (np.float32, np.int32, np.float16):
        f(rows(3).astype(dtype).astype("float32"), rows(3).astype(dtype).astype("float32"))


@dataclasses.dataclass
class Smoothed:
    """A module of which one number is no array."""

    weight: Any
    smoothing: Any


@dataclasses.dataclass
class Activated:
    """A module with a function of its own."""

    weight: Any
    activation: Any


@dataclasses.dataclass
class OfArrays:
    """A module of arrays alone."""

    weight: Any
    smoothing: Any


jax.tree_util.register_dataclass(Smoothed, ["weight"], ["smoothing"])
jax.tree_util.register_dataclass(Activated, ["weight"], ["activation"])
jax.tree_util.register_dataclass(OfArrays, ["weight", "smoothing"], [])


def static_field() -> None:
    apply = jax.jit(lambda model, x: x * model.weight * model.smoothing)
    for step in range(1, 6):
        apply(Smoothed(rows(2), 0.5**step), rows(2))


def field_of_data() -> None:
    apply = jax.jit(lambda model, x: x * model.weight * model.smoothing)
    for step in range(1, 6):
        apply(OfArrays(rows(2), 0.5**step), rows(2))


class Dropped(nnx.Module):  # type: ignore[misc]
    """A dropout whose rate is data, as the advice has it."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.rngs, self.rate = rngs, nnx.Variable(jnp.asarray(0.0, jnp.float32))

    def __call__(self, x: Any) -> Any:
        keep = jax.random.bernoulli(self.rngs.dropout(), 1 - self.rate[...], x.shape)
        return jnp.where(keep, x / (1 - self.rate[...]), 0)


READ_IN_PYTHON, OF_DATA = nnx.Dropout(0.0, rngs=nnx.Rngs(dropout=0)), Dropped(nnx.Rngs(dropout=0))


def rate_of_dropout() -> None:
    drop, apply = READ_IN_PYTHON, nnx.jit(lambda drop, x: drop(x))
    for step in range(6):
        drop.rate = 0.1 * step
        apply(drop, rows(2))


def rate_as_variable() -> None:
    drop, apply = OF_DATA, nnx.jit(lambda drop, x: drop(x))
    for step in range(6):
        drop.rate.set_value(np.float32(0.1 * step))
        apply(drop, rows(2))


def new_objects() -> None:
    apply = jax.jit(lambda model, x: model.activation(x * model.weight))
    for _ in range(4):
        apply(Activated(rows(2), lambda x: x * 2), rows(2))


def one_object() -> None:
    apply = jax.jit(lambda model, x: model.activation(x * model.weight))
    double = lambda x: x * 2  # noqa: E731
    for _ in range(4):
        apply(Activated(rows(2), double), rows(2))


def eager_map() -> None:
    for scale in range(4):
        jax.lax.map(lambda row, scale=scale: row * scale, jnp.asarray(rows(2)))


def jitted_map() -> None:
    apply = jax.jit(lambda rows, scale: jax.lax.map(lambda row: row * scale, rows))
    for scale in range(4):
        apply(jnp.asarray(rows(2)), scale)


def joined() -> None:
    for count in (120, 130, 140, 150):
        jnp.stack([jnp.asarray(rows(1))] * count)


def joined_on_the_host() -> None:
    for count in (120, 130, 140, 150):
        np.stack(jax.device_get([jnp.asarray(rows(1))] * count))


def growing_curve() -> None:
    total = jax.jit(lambda curve: curve.sum())
    curve = jnp.ones((1, 3))
    for _ in range(14):
        curve = jnp.concatenate([curve, rows(1)])
        total(curve)


def whole_curve() -> None:
    @jax.jit
    def total(curve: Any, day: Any) -> tuple[Any, Any]:
        curve = curve.at[day].set(1.0)
        return curve, jnp.where(jnp.arange(15)[:, None] <= day, curve, 0).sum()

    curve = jnp.ones((15, 3))
    for day in range(1, 15):
        curve, _ = total(curve, day)


def collected() -> None:
    f = jax.jit(lambda state: state["w"] * 2)
    state: dict[str, Any] = {"w": rows(2)}
    for turn in range(6):
        f(state)
        state.setdefault("seen", []).append(np.float32(turn))


def emptied() -> None:
    f = jax.jit(lambda state: state["w"] * 2)
    state: dict[str, Any] = {"w": rows(2), "seen": []}
    for turn in range(6):
        f(state)
        state["seen"].append(np.float32(turn))
        state["seen"].clear()


CASES = [
    Case("pad dimension {dim} of {name}{others} to {sizes}", any_sizes, padded),
    Case("rows and mask them, or leave it out (drop_last)", short_last_batch, without_last_batch),
    Case("Write into a cache of fixed size with jax.lax.dynamic_update_slice", growing_cache, fixed_cache),
    Case("take {name} out of static_argnums", static_rate, traced_rate),
    Case("use few values of {name}, or pass it as an array", static_names, names_as_array),
    Case("Give {name} the same number of dimensions", ranks, one_rank),
    Case("Convert what comes in another dtype before the call: {}", dtypes, one_dtype),
    Case("Give {name}{besides} one dtype from the first call on", weak_carry, strong_carry),
    Case("Give {name} the same keys, lengths and None entries", other_entries, same_entries),
    Case("Define {function} and call jax.jit on {it} once", new_functions, one_function),
    Case("Make {} once, outside of the loop, and call", jitted.with_optimizers, jitted.with_an_optimizer),
    Case("and {beside} once, outside of {maker}", jitted.with_functions_inside, jitted.with_functions_outside),
    Case("Call jax.jit once, with one set of options", other_options, one_set_of_options),
    Case("Call {function} under the same configuration", other_configuration, one_configuration),
    Case("Clear no caches in the loop", cleared, not_cleared),
    Case("What comes piece by piece, keep in a list and join once", outside, with_numpy),
    Case("with one jax.device_get, and go on with NumPy", jitted.selected, jitted.selected_on_the_host),
    Case("Put what {line} calls into one function under", jitted.scored_one_by_one, jitted.scored_at_one_length),
    Case("Convert what comes in another dtype before the call: {}", two_dtypes, two_of_one_dtype),
    Case("Make {name} an array of one dtype (jnp.asarray(value, jnp.float32)", static_field, field_of_data),
    Case("Pass {name} as an array of one dtype", jitted.with_a_number, jitted.with_a_number_in_an_array),
    Case("Write the dropout with a rate that is an array", rate_of_dropout, rate_as_variable),
    Case("Make it once, outside of the loop, and pass the same object", new_objects, one_object),
    Case("under jax.jit, which is made once{method}: what it calls is then traced once", eager_map, jitted_map),
    Case("pass it at its full length", growing_curve, whole_curve),
    Case("is longer in each call, and each length has a program of its own: empty it", collected, emptied),
    Case("Collect what belongs together in one array", joined, joined_on_the_host),
    Case("Keep the values in one array of full size, made once", jitted.listed, jitted.listed_in_an_array),
]


def recorded(path: Path, program: Callable[[], Any]) -> tuple[list[JitCompile], tuple[Finding, ...]]:
    jax.clear_caches()
    with recording(path) as told:
        program()
    events = told().events
    return told().of(JitCompile), Run().feed_all(events).report().findings


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.wrong.__name__)
def test_the_advice_is_given_and_takes_the_programs_away(case: Case, tmp_path: Path) -> None:
    before, found = recorded(tmp_path / "before.log", case.wrong)
    words = max(re.split(r"\{\w*\}", case.words), key=len)  # between what is filled in
    [finding] = [one for one in found if words in one.advice]
    assert finding.place.func == case.wrong.__name__
    after, left = recorded(tmp_path / "after.log", case.right)
    assert [one for one in left if one.kind == finding.kind] == []  # beside other tests an upload may take long
    assert len(after) <= len(before) - finding.count


def test_without_the_check_for_nan_no_call_waits(tmp_path: Path) -> None:
    found = {}
    for debugs in (True, False):
        x, update = jnp.ones((400, 400)), jax.jit(lambda x: x * 0.5 + 1)
        with jax.debug_nans(debugs), recording(tmp_path / f"{debugs}.log") as told:
            for _ in range(120):
                x = update(x)
        found[debugs] = Run().feed_all(told().events).report().findings
        assert (
            len(told().of(TransferFromDevice)) == 120 * debugs - debugs
        )  # the first call is looked at while it is made
    [finding] = found[True]
    assert (finding.operation, finding.place.code) == ("jax_debug_nans", "x = update(x)")
    assert "Leave jax_debug_nans" in finding.advice
    assert found[False] == ()


def walked(key: Any, seconds: float) -> Any:
    """A chain of Metropolis: Python takes each step, or does not."""
    rng = np.random.default_rng(0)
    theta, density = jnp.zeros(4), jax.jit(lambda theta: -jnp.sum(theta**2))
    propose = jax.jit(lambda key, theta: theta + jax.random.normal(key, theta.shape))
    current, steps = density(theta), itertools.cycle(np.asarray(jax.random.split(key, 4_000)))
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        candidate = propose(next(steps), theta)
        value = density(candidate)
        if bool(np.log(rng.random()) < value - current):
            theta, current = candidate, value
    return theta


@jax.jit
def scanned(steps: Any) -> Any:
    def turn(state: Any, step: Any) -> Any:
        theta, current = state
        candidate = theta + jax.random.normal(step, theta.shape)
        value = -jnp.sum(candidate**2)
        taken = jnp.log(jax.random.uniform(step)) < value - current
        return (jnp.where(taken, candidate, theta), jnp.where(taken, value, current)), None

    return jax.lax.scan(turn, (jnp.zeros(4), jnp.zeros(())), steps)[0][0]


def test_a_loop_in_which_python_decides_by_what_it_reads_becomes_one_scan(tmp_path: Path) -> None:
    _, found = recorded(tmp_path / "before.log", lambda: walked(jax.random.PRNGKey(0), seconds=4.0))
    [finding] = [one for one in found if one.kind == "op_by_op"]
    assert finding.place.code == "if bool(np.log(rng.random()) < value - current):"
    assert finding.advice.startswith("Decide with jnp.where at test_jax.py:")
    assert "put the whole loop into one function under jax.jit, as a jax.lax.scan" in finding.advice
    _, left = recorded(tmp_path / "after.log", lambda: scanned(jax.random.split(jax.random.PRNGKey(0), 4_000)))
    assert left == ()


def cuts(once: bool) -> None:
    """A volume is scaled, for each cut through it or before."""

    def scaled() -> Any:
        return (jnp.asarray(volume) / 4096 - 0.5) / 0.25  # here

    volume, step = np.arange(1 << 19, dtype=np.int32).reshape(32, 128, 128), jax.jit(lambda x, at: x[at].sum())
    ready, until = scaled(), time.perf_counter() + 2.5
    while time.perf_counter() < until:
        for at in range(8):
            step(ready if once else scaled(), at)


def test_the_same_data_is_computed_with_once(tmp_path: Path) -> None:
    _, found = recorded(tmp_path / "before.log", lambda: cuts(once=False))
    [finding] = [one for one in found if one.kind == "op_by_op"]
    assert finding.advice.startswith("Do once, before the loop, what is computed of the data that test_jax.py:")
    assert "again and again (i32[32,128,128])" in finding.advice
    assert any(place.code.endswith("# here") for place in finding.also)
    _, left = recorded(tmp_path / "after.log", lambda: cuts(once=True))
    assert left == ()
