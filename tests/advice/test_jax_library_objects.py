"""Advice on functions that a library jits for each object of its own: one object serves all calls."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tests.advice.test_jax import recorded

#: as solvers have it that jit a method of each object
LIBRARY = """
import jax


class Solver:
    def __init__(self, loss, rate):
        self.step = jax.jit(lambda w, strength: w - rate * jax.grad(loss)(w, strength))

    def run(self, w, strength):
        for _ in range(20):
            w = self.step(w, strength)
        return w
"""
STRENGTHS = (0.1, 0.2, 0.4, 0.8, 1.6)


def loss(w: Any, strength: Any) -> Any:
    hidden = w
    for turn in range(12):
        hidden = jnp.tanh(hidden @ hidden.T + turn)
    return jnp.sum(hidden**2) + strength * jnp.sum(w**2)


def test_an_object_of_a_library_that_jits_its_method_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "solves_fits.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    solver = importlib.import_module("solves_fits").Solver
    w = jax.device_put(jnp.ones((5, 5)))

    def anew() -> None:
        for strength in STRENGTHS:
            solver(loss, 0.01).run(w, jnp.float32(strength))  # here

    def once() -> None:
        fit = solver(loss, 0.01)
        for strength in STRENGTHS:
            fit.run(w, jnp.float32(strength))

    before, found = recorded(tmp_path / "before.log", anew)
    [finding] = [one for one in found if one.kind == "recompile"]
    assert finding.place.code == "solver(loss, 0.01).run(w, jnp.float32(strength))  # here"
    assert finding.advice.startswith("Make the object that <lambda> belongs to once, outside the loop, and use that")
    after, left = recorded(tmp_path / "after.log", once)
    assert [one for one in left if one.kind == "recompile"] == []
    assert sum(one.ops > 20 for one in before) == len(STRENGTHS)
    assert sum(one.ops > 20 for one in after) == 1
