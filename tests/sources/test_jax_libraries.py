"""Libraries that hand JAX the program's calls in another form, and what is static in their modules."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.sources.jitted import Tell, told


@pytest.fixture
def tell(tmp_path: Path) -> Tell:
    return functools.partial(told, tmp_path / "run.log")


def test_what_is_no_array_to_equinox_is_told_as_the_program_wrote_it(tell: Tell) -> None:
    eqx = pytest.importorskip("equinox")

    @eqx.filter_jit
    def update(model: Any, xs: Any, weight: Any, *, mode: str = "sum") -> Any:
        return jax.vmap(model)(xs).sum() * weight

    def program() -> None:
        model = eqx.nn.MLP(2, 3, 4, 1, key=jax.random.key(0))
        xs = np.ones((5, 2), np.float32)
        for weight in (0.0, 0.1, 0.2, 0.3):
            update(model, jnp.asarray(xs), weight)  # here
        update(model, jnp.asarray(xs[:4]), 0.3)
        update(model, jnp.asarray(xs[:4]), 0.3, mode="mean")
        update(eqx.nn.MLP(2, 3, 4, 1, activation=jnp.tanh, key=jax.random.key(0)), jnp.asarray(xs), 0.3)

    run = tell(program)
    changes = [[(one.kind, one.name, one.old, one.new) for one in each] for each in run.changes("update")]
    assert changes[1:4] == [
        [("field", "weight", old, new)] for old, new in (("0.0", "0.1"), ("0.1", "0.2"), ("0.2", "0.3"))
    ]
    assert changes[4] == [("shape", "xs", "f32[5,2]", "f32[4,2]")]
    assert changes[5] == [("field", "mode", "", "'mean'")]
    assert [(kind, name) for kind, name, _, _ in changes[6]] == [("field", "model.activation")]
    [finding] = [one for one in run.report.findings if "weight" in one.cause]
    assert finding.place.acting.code == "" or finding.place.code == "update(model, jnp.asarray(xs), weight)  # here"
    assert finding.count == 3


def test_a_number_of_an_nnx_module_is_told_by_its_attribute(tell: Tell) -> None:
    nnx = pytest.importorskip("flax.nnx")

    class Net(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.smoothing = 0.2
            self.first = nnx.Linear(2, 3, rngs=rngs)
            self.drop = nnx.Dropout(0.1, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.drop(self.first(x)) * self.smoothing

    @nnx.jit
    def train(model: Any, x: Any) -> Any:
        return model(x).sum()

    def program() -> None:
        net, x = Net(nnx.Rngs(0)), np.ones((4, 2), np.float32)
        for smoothing in (0.2, 0.1, 0.05):
            net.smoothing = smoothing
            train(net, x)
        net.drop.rate = 0.5
        train(net, x)
        train(net, x[:3])

    changes = [[(one.kind, one.name, one.old, one.new) for one in each] for each in tell(program).changes("train")]
    assert changes[1:] == [
        [("field", "model.smoothing", "0.2", "0.1")],
        [("field", "model.smoothing", "0.1", "0.05")],
        [("field", "model.drop.rate", "0.1", "0.5")],
        [("shape", "x", "f32[4,2]", "f32[3,2]")],
    ]


def test_a_train_state_of_a_new_model_is_made_anew(tell: Tell) -> None:
    nn = pytest.importorskip("flax.linen")
    optax = pytest.importorskip("optax")
    train_state = pytest.importorskip("flax.training.train_state")

    @jax.jit
    def step(state: Any, x: Any) -> Any:
        return state.apply_fn({"params": state.params}, x).sum()

    def program() -> None:
        x = np.ones((4, 2), np.float32)
        for _ in range(3):
            model = nn.Dense(3)
            params = jax.jit(model.init)(jax.random.key(0), x)["params"]  # here
            state = train_state.TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1e-3))
            step(state, x)

    run = tell(program)
    names = [[(one.kind, one.name) for one in each] for each in run.changes("step")]
    assert names[1:] == [[("anew", f"state.{name}") for name in ("apply_fn", "tx.init", "tx.update")]] * 2
    assert [[one.kind for one in each] for each in run.changes("init")] == [[], ["function"], ["function"]]
    assert {one.count for one in run.report.findings if one.kind == "recompile"} == {2}


def of_nnx(*, apart: bool) -> Any:
    """A dose-response curve is fitted in 1,000 small steps. ``apart``: its module is split once, before the loop."""
    nnx = pytest.importorskip("flax.nnx")
    optax = pytest.importorskip("optax")

    def program() -> None:
        doses = jnp.linspace(0, 1, 16)[:, None]
        model = nnx.Sequential(*(nnx.Linear(n, m, rngs=nnx.Rngs(0)) for n, m in ((1, 8), (8, 8), (8, 1))))
        optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)

        def fit(model: Any, optimizer: Any, x: Any) -> None:
            optimizer.update(model, nnx.grad(lambda one: jnp.square(one(x) - x).mean())(model))

        if not apart:
            step = nnx.jit(fit)
            for _ in range(1000):
                step(model, optimizer, doses)  # here
            return
        made, state = nnx.split((model, optimizer))

        @jax.jit
        def pure(state: Any, x: Any) -> Any:
            both = nnx.merge(made, state)
            fit(*both, x)
            return nnx.state(both)

        for _ in range(1000):
            state = pure(state, doses)

    return program


def of_equinox(*, apart: bool) -> Any:
    """A filter bank is relaxed in 1,000 small steps. ``apart``: its arrays are taken out once, before the loop."""
    eqx = pytest.importorskip("equinox")

    def relax(bank: Any, x: Any) -> Any:
        return jax.tree.map(lambda one: one - 1e-3 * jnp.tanh(one) * x.mean() if eqx.is_array(one) else one, bank)

    def program() -> None:
        bank = [eqx.nn.MLP(2, 2, 4, 3, key=jax.random.key(n)) for n in range(12)]
        tone = jnp.ones(8)
        if not apart:
            step = eqx.filter_jit(relax)
            for _ in range(1000):
                bank = step(bank, tone)  # here
            return
        arrays, rest = eqx.partition(bank, eqx.is_array)
        pure = jax.jit(lambda arrays, x: eqx.filter(relax(eqx.combine(arrays, rest), x), eqx.is_array))
        for _ in range(1000):
            arrays = pure(arrays, tone)

    return program


@pytest.mark.parametrize(("library", "program"), [("flax", of_nnx), ("equinox", of_equinox)])
def test_a_librarys_own_python_around_each_call_is_told_with_what_spares_it(
    library: str, program: Any, tell: Tell
) -> None:
    def idle(apart: bool) -> str:
        return " ".join(one.text for one in tell(program(apart=apart)).report.accounts if one.what == "idle")

    assert f"avoidable: {library}'s own Python around each call" in (told := idle(apart=False))
    assert "test_jax_libraries.py:" in told
    assert "<generated_" not in told, "what equinox makes is nobody's line"
    assert "around each call" not in idle(apart=True)


def test_a_function_that_is_handed_a_module_is_put_under_the_librarys_jit(tell: Tell) -> None:
    """A score of a model that runs operation by operation beside a jitted step: jax.jit would refuse the model."""
    eqx = pytest.importorskip("equinox")
    heard = jnp.ones((64, 6))

    def step(model: Any, x: Any) -> Any:
        return jax.tree.map(lambda one: one * 0.999 if eqx.is_inexact_array(one) else one, model)

    def score(model: Any, x: Any) -> Any:
        for layer in (model.layers[0], model.layers[1]):
            x = jnp.tanh(x @ layer.weight.T + layer.bias)
        return jnp.square(x).mean() + jnp.abs(x).max()

    def program(score: Any) -> Any:
        def run() -> None:
            model = eqx.nn.MLP(6, 6, 6, 1, key=jax.random.key(0))
            train = eqx.filter_jit(step)
            until = time.perf_counter() + 3  # a second of it at the lines of the score, and more
            while time.perf_counter() < until:
                model = train(model, heard)
                for _ in range(3):
                    score(model, heard)

        return run

    (finding,) = (one for one in tell(program(score)).report.findings if one.kind == "op_by_op")
    assert "into one function under jax.jit" in finding.advice
    assert finding.advice.endswith("equinox.filter_jit, in place of jax.jit, which takes arrays alone.")
    with pytest.raises(TypeError):
        jax.jit(score)(eqx.nn.MLP(6, 6, 6, 1, key=jax.random.key(0)), heard)
    assert not [one for one in tell(program(eqx.filter_jit(score))).report.findings if one.kind == "op_by_op"]


def test_the_shapes_that_a_library_goes_through_in_one_call_are_no_sizes_that_vary(tell: Tell) -> None:
    """Weights of many shapes, and an optimizer's update of them outside of jit: one program for all is the remedy."""
    optax = pytest.importorskip("optax")
    sizes = np.random.default_rng(0).permutation(np.arange(3, 150, 7)).tolist()
    weights = {f"w{size}": jax.device_put(np.full((size, 9), 0.5, np.float32)) for size in sizes}
    optimizer = optax.adam(1e-3)

    def updated() -> None:
        state = optimizer.init(weights)
        optimizer.update(weights, state)  # here

    told = tell(updated).report
    assert [one for one in told.findings if one.kind == "recompile"] == []
    # of the compiling or, where a quick machine spends as long beside it, of the operations themselves
    first = " ".join(charge.why for charge in told.jax.charges)
    dispatched = [one.advice for one in told.findings if one.kind == "op_by_op"]
    assert "outside of jitted functions were compiled one by one" in first or dispatched
    assert all("into one function under jax.jit" in remedy for remedy in dispatched or [first])
