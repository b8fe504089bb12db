"""Hierarchical item-response model fitted by MAP, one model per survey wave.

Each wave of the panel has its own questionnaire weights; a small Newton-CG/Adam
hybrid fits abilities and difficulties, then the Laplace diagonal gives error bars.
"""
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

N_PEOPLE, N_ITEMS, WAVES = 600, 60, 14


@dataclass
class Wave:
    answers: np.ndarray
    weights: np.ndarray
    prior_sd: float


def simulate(rng):
    ability = rng.normal(size=N_PEOPLE)
    waves = []
    for w in range(WAVES):
        ability = ability + 0.1 * rng.normal(size=N_PEOPLE)
        difficulty = rng.normal(size=N_ITEMS)
        slope = np.exp(0.3 * rng.normal(size=N_ITEMS))
        p = 1 / (1 + np.exp(-slope * (ability[:, None] - difficulty)))
        answers = (rng.random((N_PEOPLE, N_ITEMS)) < p).astype(np.float32)
        weights = rng.uniform(0.5, 1.5, N_PEOPLE).astype(np.float32)
        waves.append((Wave(answers, weights, 0.8 + 0.05 * w), ability.copy()))
    return waves


def init_params():
    return {
        "ability": jnp.zeros(N_PEOPLE),
        "difficulty": jnp.zeros(N_ITEMS),
        "log_slope": jnp.zeros(N_ITEMS),
        "guess": jnp.full((N_ITEMS,), -3.0),
    }


def neg_log_post(params, answers, weights, prior_sd):
    z = jnp.exp(params["log_slope"]) * (params["ability"][:, None] - params["difficulty"])
    g = jax.nn.sigmoid(params["guess"])
    p = g + (1 - g) * jax.nn.sigmoid(z)
    ll = answers * jnp.log(p + 1e-6) + (1 - answers) * jnp.log1p(-p + 1e-6)
    prior = (
        0.5 * jnp.sum(params["ability"] ** 2)
        + 0.5 * jnp.sum((params["difficulty"] / prior_sd) ** 2)
        + 2.0 * jnp.sum(params["log_slope"] ** 2)
        + 0.5 * jnp.sum((params["guess"] + 3.0) ** 2)
    )
    return -jnp.sum(weights[:, None] * ll) + prior


class MapFitter:
    """Adam for a warm start, then a few damped Newton-CG steps."""

    def __init__(self, steps=400, lr=0.05, newton=6):
        self.steps, self.newton = steps, newton
        self.tx = optax.adam(optax.cosine_decay_schedule(lr, steps))

    def fit(self, wave, params):
        def objective(p):
            return neg_log_post(p, wave.answers, wave.weights, wave.prior_sd)

        @jax.jit
        def adam_chunk(params, opt):
            def body(carry, _):
                params, opt = carry
                val, grads = jax.value_and_grad(objective)(params)
                upd, opt = self.tx.update(grads, opt, params)
                return (optax.apply_updates(params, upd), opt), val

            (params, opt), vals = jax.lax.scan(body, (params, opt), length=50)
            return params, opt, vals[-1]

        @jax.jit
        def newton_step(params):
            grads = jax.grad(objective)(params)

            def hvp(v):
                hv = jax.jvp(jax.grad(objective), (params,), (v,))[1]
                return jax.tree.map(lambda h, x: h + 1.0 * x, hv, v)

            direction, _ = jax.scipy.sparse.linalg.cg(hvp, grads, maxiter=20)
            return jax.tree.map(lambda p, d: p - 0.7 * d, params, direction)

        opt = self.tx.init(params)
        for _ in range(self.steps // 50):
            params, opt, value = adam_chunk(params, opt)
        for _ in range(self.newton):
            params = newton_step(params)
        return params, objective(params)


@jax.jit
def error_bars(params, answers, weights):
    """Laplace standard errors of the abilities (diagonal information)."""
    z = jnp.exp(params["log_slope"]) * (params["ability"][:, None] - params["difficulty"])
    s = jax.nn.sigmoid(z)
    info = jnp.sum(weights[:, None] * jnp.exp(2 * params["log_slope"]) * s * (1 - s), axis=1)
    return jax.lax.rsqrt(info + 1.0)


def main():
    fitter = MapFitter()
    params = init_params()
    for i, (wave, truth) in enumerate(simulate(np.random.default_rng(3))):
        params, value = fitter.fit(wave, params)
        se = error_bars(params, wave.answers, wave.weights)
        r = np.corrcoef(np.asarray(params["ability"]), truth)[0, 1]
        print(f"wave {i:2d}: objective {float(value):9.1f}  corr {r:.3f}  mean se {float(se.mean()):.3f}")


if __name__ == "__main__":
    main()
