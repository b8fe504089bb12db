"""What a program of JAX computes again in each call, from arguments that stay the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sources.jitted import told
from xlaprof.events import RepeatedWork
from xlaprof.sources.jax.jaxprs.repeated import Part, parts, repeated

SIDE = 96
MATRIX = jnp.eye(SIDE) + 0.01 * jnp.ones((SIDE, SIDE))
VECTOR = jnp.ones(SIDE)
FIRST, SECOND, BOTH = 1, 2, 3  # bits of two arguments


def work(fun: Callable[..., Any], *args: Any) -> list[Part]:
    return parts(jax.make_jaxpr(jax.jit(fun))(*args))


def decomposed(matrix: Any, vector: Any) -> Any:
    return jnp.linalg.eigvalsh(matrix)[-1] * vector


def in_a_scan(matrix: Any, vector: Any) -> Any:
    def turn(state: Any, _: None) -> tuple[Any, Any]:
        return state * jnp.linalg.eigvalsh(matrix)[-1], None

    return jax.lax.scan(turn, vector, None, length=5)[0]


def in_a_branch(matrix: Any, vector: Any) -> Any:
    return jax.lax.cond(vector.sum() > 0, lambda: jnp.linalg.eigvalsh(matrix) * vector, lambda: vector)


def in_a_gradient(matrix: Any, vector: Any) -> Any:
    return jax.grad(lambda x: (decomposed(matrix, x) ** 2).sum())(vector)


@pytest.mark.parametrize("fun", [decomposed, in_a_scan, in_a_branch, in_a_gradient])
def test_a_decomposition_depends_on_its_matrix_alone_wherever_it_is(fun: Callable[..., Any]) -> None:
    share, dearest = repeated(work(fun, MATRIX, VECTOR), FIRST)
    assert dearest is not None
    assert (dearest.operation, dearest.depends) == ("eigh", FIRST)
    assert share > 0.9
    assert repeated(work(fun, MATRIX, VECTOR), SECOND)[0] < 0.01


def test_what_a_loop_carries_depends_on_all_that_reaches_it() -> None:
    """The matrix is scaled by the state from the second turn on: no turn's decomposition is the same in each call."""

    def fun(matrix: Any, vector: Any) -> Any:
        def turn(state: Any, _: None) -> tuple[Any, Any]:
            matrix, vector = state
            return (matrix * vector.sum(), vector * jnp.linalg.eigvalsh(matrix)[-1]), None

        return jax.lax.scan(turn, (matrix, vector), None, length=5)[0][1]

    found = work(fun, MATRIX, VECTOR)
    assert repeated(found, FIRST)[0] < 0.01
    assert repeated(found, BOTH)[0] == 1.0


def test_of_a_loop_that_ends_by_a_value_the_least_is_said() -> None:
    """One turn of what is repeated, a hundred of the rest, which is as dear."""

    def fun(matrix: Any, vector: Any) -> Any:
        def turn(state: Any) -> Any:
            return state * jnp.linalg.eigvalsh(matrix)[-1] + jnp.linalg.eigvalsh(matrix * state[0])[-1]

        return jax.lax.while_loop(lambda state: (state < 9).all(), turn, vector)

    assert 0.005 < repeated(work(fun, MATRIX, VECTOR), FIRST)[0] < 0.02


def test_what_nobody_needs_is_not_computed_and_constants_are_folded_but_for_solvers() -> None:
    constant = np.eye(SIDE, dtype=np.float32) * 3

    def fun(matrix: Any, vector: Any) -> Any:
        jnp.linalg.svd(matrix)  # XLA leaves it out
        return vector @ (constant @ constant) + jnp.linalg.eigvalsh(constant)[0]

    found = work(fun, MATRIX, VECTOR)
    share, dearest = repeated(found, 0)
    assert dearest is not None
    assert dearest.operation == "eigh"
    assert share > 0.9
    assert not any(part.depends & FIRST for part in found)


def recorded(path: Path, program: Callable[[], Any]) -> list[RepeatedWork]:
    found: list[RepeatedWork] = told(path, program).recorded.of(RepeatedWork)
    return found


def calls(step: Callable[[Any, Any], Any], matrix: Callable[[], Any]) -> Callable[[], Any]:
    def program() -> None:
        vector = jnp.ones(SIDE)
        for _ in range(8):
            vector = step(matrix(), vector)
        assert jnp.isfinite(vector).all()

    return program


class Filter(eqx.Module):
    matrix: Any

    def __call__(self, vector: Any) -> Any:
        return decomposed(self.matrix, vector)


def test_an_argument_that_is_the_same_in_each_call_is_named_with_the_line_that_uses_it(tmp_path: Path) -> None:
    (one,) = recorded(tmp_path / "run.log", calls(jax.jit(decomposed), lambda: MATRIX))
    assert (one.operation, one.shape, one.arguments) == ("eigh", [SIDE, SIDE], ["matrix"])
    assert one.share > 900
    assert one.calls == 8


def test_the_same_field_of_a_module_is_seen_through_equinox(tmp_path: Path) -> None:
    apply = eqx.filter_jit(lambda model, vector: model(vector))
    model = Filter(MATRIX * 1.5)
    (one,) = recorded(tmp_path / "run.log", calls(lambda _, vector: apply(model, vector), lambda: None))
    assert (one.operation, one.arguments) == ("eigh", ["model"])


@pytest.mark.parametrize("anew", [lambda: MATRIX * 1.0, lambda: np.asarray(MATRIX)], ids=["array", "numpy"])
def test_another_array_in_each_call_and_one_that_the_host_may_write_are_not_the_same(
    anew: Callable[[], Any], tmp_path: Path
) -> None:
    assert recorded(tmp_path / "run.log", calls(jax.jit(decomposed), anew)) == []


def test_numbers_that_are_equal_are_the_same_and_others_are_not(tmp_path: Path) -> None:
    def step(scale: Any, vector: Any) -> Any:
        return decomposed(MATRIX * scale, vector)

    (one,) = recorded(tmp_path / "same.log", calls(jax.jit(step), lambda: 0.5))
    assert one.arguments == ["scale"]
    numbers = iter(range(1, 9))
    assert recorded(tmp_path / "other.log", calls(jax.jit(lambda s, v: step(s, v)), lambda: next(numbers))) == []
