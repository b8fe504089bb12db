"""Advice on loops of plain functions over JAX's arrays: the whole loop becomes one program."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.advice.test_jax import recorded


def smooth(x: Any) -> Any:
    return 0.5 * x + 0.25 * (jnp.roll(x, 1) + jnp.roll(x, -1))


def change(new: Any, old: Any) -> Any:
    return jnp.sqrt(jnp.sum((new - old) ** 2))


def settle(x: Any) -> Any:
    for _ in range(10_000):
        new = smooth(x)
        if change(new, x) < 1e-4:
            break
        x = new
    return x


@jax.jit
def settled(x: Any) -> Any:
    start = (smooth(x), x)
    return jax.lax.while_loop(lambda two: change(*two) >= 1e-4, lambda two: (smooth(two[0]), two[0]), start)[0]


def repeated(solve: Any) -> None:
    until = time.perf_counter() + 5
    x = jnp.linspace(0.0, 1.0, 64)
    solve(x)
    while time.perf_counter() < until:
        solve(x).block_until_ready()


def test_a_loop_of_plain_functions_that_goes_on_by_a_value_becomes_one_while_loop(tmp_path: Path) -> None:
    _, found = recorded(tmp_path / "before.log", lambda: repeated(settle))
    [finding] = [one for one in found if one.kind == "op_by_op"]
    line = settle.__code__.co_firstlineno + 1
    assert (
        f"Put the whole loop at line {line} into one function under jax.jit, as a jax.lax.while_loop" in finding.advice
    )
    _, left = recorded(tmp_path / "after.log", lambda: repeated(settled))
    assert [one for one in left if one.kind == "op_by_op"] == []


ANGLES = np.linspace(0.1, 1.5, 120, dtype=np.float32)


def tilted(rows: Any, angle: Any) -> Any:
    turned = rows * jnp.cos(angle) - jnp.roll(rows, 1) * jnp.sin(angle)
    return jnp.tanh(turned + jnp.roll(turned, 2) * 0.5) * jnp.exp(-jnp.abs(turned))


@jax.jit
def listed(rows: Any) -> Any:
    return jnp.stack([tilted(rows, angle) for angle in ANGLES]).sum(0)


@jax.jit
def mapped(rows: Any) -> Any:
    return jax.vmap(tilted, (None, 0))(rows, ANGLES).sum(0)


def test_a_comprehension_that_is_unrolled_becomes_one_vmap(tmp_path: Path) -> None:
    rows = np.linspace(0.0, 1.0, 48, dtype=np.float32)
    _, found = recorded(tmp_path / "before.log", lambda: listed(rows))
    [finding] = [one for one in found if one.kind == "unrolled_loop"]
    assert finding.place.code == "return jnp.stack([tilted(rows, angle) for angle in ANGLES]).sum(0)"
    assert "No turn of a comprehension needs another's result: jax.vmap of what it computes" in finding.advice
    _, left = recorded(tmp_path / "after.log", lambda: mapped(rows))
    assert [one for one in left if one.kind == "unrolled_loop"] == []
    np.testing.assert_allclose(listed(rows), mapped(rows), rtol=1e-2, atol=1e-3)


@partial(jax.jit, donate_argnums=0)
def put(tape: Any, at: int, row: Any) -> Any:
    return tape.at[at].set(row)


def test_an_array_that_is_written_part_by_part_is_donated_to_a_jitted_write(tmp_path: Path) -> None:
    """A tape of 32 MB holds the states of a drum; each write of a row copies the tape."""
    row = jnp.ones((256, 256))

    def plainly() -> None:
        tape = jnp.zeros((128, 256, 256))
        for at in range(100):
            tape = tape.at[at].set(row)  # here
        tape.block_until_ready()

    def in_place() -> None:
        tape = jnp.zeros((128, 256, 256))
        for at in range(100):
            tape = put(tape, at, row)
        tape.block_until_ready()

    _, found = recorded(tmp_path / "before.log", plainly)
    [finding] = [one for one in found if one.kind == "donation"]
    assert finding.place.code == "tape = tape.at[at].set(row)  # here"
    assert "all of tape is copied into it" in finding.cause
    assert "tape = put(tape, ...)" in finding.advice
    _, left = recorded(tmp_path / "after.log", in_place)
    assert [one for one in left if one.kind == "donation"] == []


TABLE_AT, TABLE = np.linspace(0.0, 1.0, 9, dtype=np.float32), np.geomspace(1.0, 7.0, 9, dtype=np.float32)


def flown(look_up: Any) -> None:
    @jax.jit
    def path(height: Any) -> Any:
        def turn(at: Any, _: None) -> tuple[Any, Any]:
            return at * 0.99 + 0.001 * look_up(at), None

        return jax.lax.scan(turn, height, None, length=300)[0]

    for _ in range(20):
        path(jnp.float32(0.4)).block_until_ready()


def in_python(at: Any) -> Any:
    def found(at: Any) -> Any:
        return np.float32(np.interp(at, TABLE_AT, TABLE))

    return jax.pure_callback(found, jax.ShapeDtypeStruct((), np.float32), at, vmap_method="sequential")


def test_what_python_looks_up_for_a_program_is_looked_up_by_jnp(tmp_path: Path) -> None:
    _, found = recorded(tmp_path / "before.log", lambda: flown(in_python))
    [finding] = [one for one in found if one.kind == "host_callback"]
    assert finding.advice.startswith("Write with jnp what Python computes for the program")
    _, left = recorded(tmp_path / "after.log", lambda: flown(lambda at: jnp.interp(at, TABLE_AT, TABLE)))
    assert [one for one in left if one.kind == "host_callback"] == []
