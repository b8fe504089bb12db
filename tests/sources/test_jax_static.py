"""What is part of a program's key and is no array: each difference is told by its field, and nothing by an address."""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sources.jitted import Tell, Told, told
from xlaprof.sources.jax import static


@pytest.fixture
def tell(tmp_path: Path) -> Tell:
    return functools.partial(told, tmp_path / "run.log")


@functools.partial(jax.tree_util.register_dataclass, data_fields=["weights"], meta_fields=["apply", "rate"])
@dataclasses.dataclass
class State:
    weights: Any
    apply: Any
    rate: float = 0.5


@dataclasses.dataclass(frozen=True)
class Sampler:
    width: float
    turns: int = 3


@jax.tree_util.register_pytree_node_class
class Layer:
    """A node as libraries write them, whose names JAX does not know."""

    def __init__(self, kernel: Any, scale: float) -> None:
        self.kernel, self.scale = kernel, scale

    def tree_flatten(self) -> tuple[tuple[Any], dict[str, Any]]:
        return (self.kernel,), {"scale": self.scale}

    @classmethod
    def tree_unflatten(cls, more: dict[str, Any], children: tuple[Any]) -> Layer:
        return cls(*children, **more)


class Model:
    def __init__(self, width: int) -> None:
        self.width = width

    def __call__(self, x: Any) -> Any:
        return x * self.width

    def init(self, x: Any) -> Any:
        return x + self.width


def differences(run: Told, name: str) -> list[list[tuple[str, str, str, str]]]:
    return [[(one.kind, one.name, one.old, one.new) for one in changes] for changes in run.changes(name)[1:]]


def test_a_static_number_of_a_pytree_is_told_by_its_field_and_both_values(tell: Tell) -> None:
    @jax.jit
    def descend(state: State) -> Any:
        return state.weights * state.rate

    @jax.jit
    def apply(layer: Layer) -> Any:
        return layer.kernel * layer.scale

    def program() -> None:
        for turn in range(5):
            descend(State(np.ones(3, np.float32), None, 0.5**turn))
        for scale in (1.0, 2.0):
            apply(Layer(np.ones(2, np.float32), scale))

    run = tell(program)
    assert differences(run, "descend")[0] == [("field", "state.rate", "1.0", "0.5")]
    assert differences(run, "apply") == [[("field", "layer['scale']", "1.0", "2.0")]]
    [finding] = [one for one in run.report.findings if "state.rate" in one.cause]
    assert "state.rate, which is no array and so a part of the program, changed from 1.0 to 0.5" in finding.cause
    assert "Make state.rate an array of one dtype (jnp.asarray(value, jnp.float32)" in finding.advice
    assert finding.count == 4


def test_an_object_made_anew_is_one_finding_for_all_functions_and_no_program_is_said_to_be_dropped(tell: Tell) -> None:
    @jax.jit
    def train(state: State) -> Any:
        return state.apply(state.weights) * 2

    @jax.jit
    def check(state: State) -> Any:
        return state.apply(state.weights).sum()

    def program() -> None:
        for _ in range(3):
            state = State(np.ones(4, np.float32), Model(2))
            train(state)
            check(state)

    run = tell(program)
    assert differences(run, "train") == [[("anew", "state.apply", "Model", "Model")]] * 2
    finding = run.finding
    assert finding.count == 4
    assert "state.apply is another object than before, of the same text (Model)" in finding.cause
    assert "train, check were compiled again" in finding.cause
    assert "Make it once, outside of the loop" in finding.advice
    assert not any("clear" in text or " at 0x" in text for text in (finding.cause, finding.advice, *finding.evidence))

    model = Model(2)  # as the advice says
    fixed = tell(lambda: [train(State(np.ones(4, np.float32), model)) for _ in range(3)])
    assert len(fixed.of("train")) == 1


def test_a_frozen_dataclass_is_told_by_the_field_that_differs(tell: Tell) -> None:
    @functools.partial(jax.jit, static_argnames="how")
    def draw(x: Any, how: Sampler) -> Any:
        return x * how.width

    def program() -> None:
        for width in (0.02, 0.014, 0.011, 0.009):
            draw(np.ones(3, np.float32), how=Sampler(width))

    run = tell(program)
    assert differences(run, "draw")[0] == [("static", "how.width", "0.02", "0.014")]
    assert "pass how.width as an argument that is not static" in run.finding.advice
    assert "Sampler" not in run.finding.cause


def test_a_method_that_is_jitted_again_in_each_call_is_a_function_compiled_again(tell: Tell) -> None:
    def prepare() -> Any:
        return jax.jit(Model(3).init)(np.ones(3, np.float32))  # here

    run = tell(lambda: [prepare() for _ in range(4)])
    assert [[one.kind for one in changes] for changes in run.changes("init")] == [[], *[["function"]] * 3]
    assert run.finding.place.code == "return jax.jit(Model(3).init)(np.ones(3, np.float32))  # here"
    assert run.finding.count == 3


def minmod(slope: Any, state: Any) -> Any:
    return jnp.minimum(1.0, jnp.maximum(0.0, slope)) * state["height"]


def superbee(slope: Any, state: Any) -> Any:
    return jnp.maximum(jnp.minimum(2.0 * slope, 1.0), 0.0) * state["height"]


def blended(slope: Any, state: Any) -> Any:
    return jnp.tanh(slope) * state["height"] + state["weight"] * slope


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("wrapped", [False, True])
def test_one_code_made_for_each_of_three_functions_is_three_programs_that_somebody_wants(
    tell: Tell, rounds: int, wrapped: bool
) -> None:
    """A solver that is made for each slope limiter, one of which has a parameter more. Made for each again, it is
    compiled again for nothing."""

    def solver(limiter: Any) -> Any:
        def flux(state: Any) -> Any:
            return limiter(state["height"] / 2.0, state)

        def advance(state: Any) -> Any:
            return {**state, "height": state["height"] + 0.1 * (flux if wrapped else limiter)(*args(state))}

        def args(state: Any) -> tuple[Any, ...]:
            return (state,) if wrapped else (state["height"] / 2.0, state)

        return jax.jit(advance)

    def program() -> None:
        for limiter in (minmod, superbee, blended, lambda slope, state: slope * state["height"]) * rounds:
            state = {"height": np.ones(16, np.float32)} | ({"weight": np.float32(0.5)} if limiter is blended else {})
            solve = solver(limiter)
            for _ in range(4):
                state = solve(state)

    run = tell(program)
    assert len(run.of("advance")) == 4 * rounds
    found = [one for one in run.report.findings if one.kind == "recompile"]
    assert sum(one.count for one in found) == 4 * (rounds - 1), [one.cause for one in found]
    assert all("Each call has a new function object of the same code" in one.cause for one in found)


def test_two_lambdas_on_other_lines_are_other_code_and_one_that_is_made_again_is_not() -> None:
    one, other = (lambda x: x + 1), (lambda x: x * 2)
    made = [lambda x: x - 1 for _ in range(2)]
    codes = [static.parts("limiter", function)[0][1].code for function in (one, other, *made)]
    assert len(set(codes)) == 3
    assert codes[2] == codes[3]


def test_programs_are_said_to_be_dropped_where_they_were(tell: Tell) -> None:
    f = jax.jit(lambda x: x + 1)

    def program() -> None:
        for how in (jax.clear_caches, f.clear_cache, lambda: None):
            f(np.ones(3, np.float32))
            how()

    run = tell(program)
    assert [[one.kind for one in changes] for changes in run.changes("<lambda>")] == [[], ["evicted"], ["unknown"]]


class Colour(enum.Enum):
    RED = 1


class Pair(NamedTuple):
    first: Any
    second: Any


class Hostile:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("never")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("never")

    def __hash__(self) -> int:
        raise RuntimeError("never")


def test_the_parts_of_static_values() -> None:
    told = {path: one.text for path, one in static.parts("x", {"a": Pair(1, [0.5, Colour.RED]), "f": len, "s": {"u"}})}
    assert told["x['a'].first"] == "1"
    assert told["x['a'].second[0]"] == "0.5"
    assert told["x['a'].second[1]"] == "Colour.RED"
    assert told["x['s']"] == "{'u'}"
    assert [path for path, _ in static.parts("x", Hostile())] == ["x"]
    deep: list[Any] = []
    deep.append(deep)
    assert len(static.parts("x", deep)) < 20


def test_a_part_of_a_named_tuple_has_the_name_of_its_field(tell: Tell) -> None:
    """As an optimizer's moments have, of which the second alone changes its size."""
    total = jax.jit(lambda state: state[0].first["w"].sum() + state[0].second["w"].sum())
    run = tell(lambda: [total((Pair({"w": np.ones(3)}, {"w": np.ones(size)}),)) for size in (4, 5)])
    [(change,)] = [changes for changes in run.changes("<lambda>") if changes]
    assert (change.kind, change.name) == ("shape", "state[0].second['w']")


def test_values_of_arrays_and_addresses_are_in_no_text() -> None:
    secret = np.full(3, 1234.5)
    for value in (secret, jnp.asarray(secret), [secret], Pair(secret, Model(1)), functools.partial(Model(2), secret)):
        assert not any("1234" in one.text or "0x" in one.text for _, one in static.parts("x", value))


_plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=80)
_static = st.recursive(
    _plain, lambda inner: st.tuples(inner, inner) | st.dictionaries(st.text(max_size=4), inner), max_leaves=8
)


@given(_static, _static)
def test_two_values_have_the_same_parts_where_they_are_equal_to_the_type(one: Any, other: Any) -> None:
    assert static.parts("x", one) == static.parts("x", one)
    if repr(one) != repr(other):
        assert static.parts("x", one) != static.parts("x", other)


def test_an_object_is_not_kept_alive_and_a_new_one_at_its_address_is_another() -> None:
    [(_, known)] = static.parts("x", Model(1))  # it is gone
    [(_, now)] = static.parts("x", Model(1))
    assert known != now
    model = Model(1)
    assert static.parts("x", model) == static.parts("x", model)
    assert static.parts("x", model.init) == static.parts("x", model.init)


def test_two_sorts_of_batches_are_meant_and_not_a_size_that_varies(tell: Tell) -> None:
    """Long rows and short ones, as many words in each: both dimensions differ, once."""
    score = jax.jit(lambda words: jnp.tanh(words).sum())

    def program(shapes: list[tuple[int, int]]) -> None:
        for turn in range(12):
            score(np.ones(shapes[turn % len(shapes)], np.float32))

    assert tell(lambda: program([(64, 48), (128, 24)])).report.findings == ()
    [finding] = tell(lambda: program([(64, 48), (64, 47)])).report.findings
    assert "The shape of words" in finding.cause


@pytest.mark.parametrize(("orders", "again"), [((4, 6, 8, 12), 0), ((4, 4, 8, 4), 2), ((4, 4, 4, 4), 3)])
def test_a_function_made_anew_for_another_program_each_time_spares_none_when_it_is_hoisted(
    tell: Tell, orders: tuple[int, ...], again: int
) -> None:
    """A filter whose order stands in its closure: each order is a program with other shapes, and an order that comes
    again is one that need not be compiled. The gain, which is a number alone, makes no other program."""

    def smoother(order: int, gain: float) -> Any:
        kind = types.SimpleNamespace(order=order)  # an object, of which the closure tells nothing

        def smooth(x: Any) -> Any:
            taps = jnp.exp(-jnp.arange(kind.order) * gain)
            return jnp.convolve(x, taps / taps.sum(), mode="same")

        return jax.jit(smooth)

    def program() -> None:
        for nth, order in enumerate(orders):
            smoother(order, 0.1 * (nth + 1))(np.ones(64, np.float32))

    run = tell(program)
    assert [[one.kind for one in changes][:1] for changes in run.changes("smooth")] == [[], *[["function"]] * 3]
    assert [one.count for one in run.report.findings] == [again] * (again > 0)
