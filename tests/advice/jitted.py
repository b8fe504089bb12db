"""Programs of JAX that compile for each selection that values decide, for each optimizer that is made anew, or for each
length of a list."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest


def selected() -> None:
    """Readings above a limit, limit by limit, before any step: how many there are decides their values."""
    readings = jnp.asarray(np.linspace(0, 1, 40, dtype=np.float32))
    for limit in (0.9, 0.35, 0.62, 0.17, 0.48):
        above = readings[readings > limit]
        jnp.cumsum(above)
        above - above.mean()


def selected_on_the_host() -> None:
    readings = jax.device_get(jnp.asarray(np.linspace(0, 1, 40, dtype=np.float32)))
    for limit in (0.9, 0.35, 0.62, 0.17, 0.48):
        above = readings[readings > limit]
        np.cumsum(above)
        above - above.mean()


def updating(tx: Any) -> Any:
    return jax.jit(lambda grads, state: tx.update(grads, state)[0])


def with_optimizers() -> None:
    """Each fold of the data has an optimizer, whose state is made by a program, too."""
    for _ in range(4):
        tx = optax.trace(decay=0.9)
        state = jax.jit(tx.init)(np.ones(3, np.float32))
        updating(tx)(np.ones(3, np.float32), state)


def with_an_optimizer() -> None:
    tx = optax.trace(decay=0.9)
    init, update = jax.jit(tx.init), updating(tx)
    for _ in range(4):
        update(np.ones(3, np.float32), init(np.ones(3, np.float32)))


def with_functions_inside(survey: int = 3) -> None:
    """Each survey's fit defines what it minimizes, and the jitted step that calls that; then comes the next survey."""
    readings = np.full(3, survey, np.float32)

    def loss(level: Any) -> Any:
        return ((readings - level) ** 2).mean()

    @jax.jit
    def descend(level: Any) -> Any:
        return level - 0.1 * jax.grad(loss)(level)

    descend(np.float32(0))
    if survey:
        with_functions_inside(survey - 1)


def with_functions_outside() -> None:
    def loss(level: Any, readings: Any) -> Any:
        return ((readings - level) ** 2).mean()

    @jax.jit
    def descend(level: Any, readings: Any) -> Any:
        return level - 0.1 * jax.grad(loss)(level, readings)

    for survey in range(4):
        descend(np.float32(0), np.full(3, survey, np.float32))


def _squashed() -> tuple[Any, Any]:
    eqx = pytest.importorskip("equinox")
    return eqx.filter_jit(lambda x, steepness: (x * steepness).sum()), jnp.asarray(3.0, jnp.float32)


def with_a_number() -> None:
    """A plain argument, which is a number of Python's, to what takes all but arrays for static."""
    squash, x = _squashed()
    for turn in range(1, 6):
        squash(x, 1.5**turn)


def with_a_number_in_an_array() -> None:
    squash, x = _squashed()
    for turn in range(1, 6):
        squash(x, jnp.asarray(1.5**turn, jnp.float32))


def listed() -> None:
    """A smoothed series of all levels so far, in each turn, by a jitted function and outside of one."""
    smoothed, levels = jax.jit(lambda series: jnp.cumsum(series, axis=0) / 2), []
    for turn in range(14):
        levels.append(jnp.asarray(np.full(3, turn, np.float32)))
        series = jnp.stack(levels)
        smoothed(series)
        jnp.sort(series, axis=0)


def listed_in_an_array() -> None:
    @jax.jit
    def smoothed(series: Any, turn: Any, level: Any) -> tuple[Any, Any, Any]:
        series = series.at[turn].set(level)
        known = jnp.arange(14)[:, None] <= turn
        return series, jnp.cumsum(jnp.where(known, series, 0), axis=0) / 2, jnp.sort(jnp.where(known, series, jnp.inf))

    series = jnp.asarray(np.zeros((14, 3), np.float32))
    for turn in range(14):
        series, _, _ = smoothed(series, turn, np.full(3, turn, np.float32))


def _rise(level: Any) -> Any:
    return jnp.cumsum(level * 1.25 + jnp.abs(level), axis=-1)


def _score(level: Any) -> Any:
    return jnp.arctan(_rise(level) / 3.5).max()


#: of the records of gauges that are scored one by one
_LENGTHS = (31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79)


def scored_one_by_one() -> None:
    for length in _LENGTHS:
        _score(jnp.asarray(np.ones(length, np.float32)))


def scored_at_one_length() -> None:
    score = jax.jit(lambda level, real: jnp.where(real, jnp.arctan(_rise(level) / 3.5), 0).max())
    for length in _LENGTHS:
        score(np.pad(np.ones(length, np.float32), (0, 79 - length)), np.arange(79) < length)
