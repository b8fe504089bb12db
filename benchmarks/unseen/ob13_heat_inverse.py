"""Recovers a conductivity map from boundary temperatures: multi-start gradient descent through a heat solver."""
import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax


@dataclass(frozen=True)
class Problem:
    grid: int = 24
    knots: int = 6
    time_steps: int = 30
    dt: float = 0.2
    starts: int = 3
    iterations: int = 150
    lr: float = 0.05
    smooth: float = 1e-3


def interpolation_matrix(knots, grid):
    pos = np.linspace(0, knots - 1, grid)
    lo = np.minimum(pos.astype(int), knots - 2)
    w = pos - lo
    m = np.zeros((grid, knots), np.float32)
    m[np.arange(grid), lo] = 1 - w
    m[np.arange(grid), lo + 1] = w
    return jnp.asarray(m)


class HeatModel:
    def __init__(self, p):
        self.p = p
        self.interp = interpolation_matrix(p.knots, p.grid)
        self.diff = jnp.diff(jnp.eye(p.grid), axis=0)
        x = jnp.linspace(0, 1, p.grid)
        self.source = jnp.exp(-((x[:, None] - 0.3) ** 2 + (x[None] - 0.6) ** 2) / 0.02)

    def conductivity(self, params):
        coarse = params["coarse"]
        fine = self.interp @ coarse @ self.interp.T
        return 0.1 + jax.nn.sigmoid(fine + params["offset"])

    def advance(self, temp, kappa):
        ky, kx = 0.5 * (kappa[1:] + kappa[:-1]), 0.5 * (kappa[:, 1:] + kappa[:, :-1])
        flux = -self.diff.T @ (ky * (self.diff @ temp)) - (kx * (temp @ self.diff.T)) @ self.diff
        return temp + self.p.dt * (flux + 0.1 * self.source)

    def boundary(self, params):
        kappa = self.conductivity(params)
        temp = jnp.zeros_like(kappa)
        readings = []
        for n in range(self.p.time_steps):
            temp = self.advance(temp, kappa)
            readings.append(jnp.concatenate([temp[0], temp[-1], temp[:, 0], temp[:, -1]]))
        return jnp.stack(readings)


def true_map(p, seed):
    rng = np.random.default_rng(seed)
    coarse = rng.normal(0, 1, (p.knots, p.knots))
    coarse[1:3, 3:5] += 2.0
    return {"coarse": jnp.asarray(coarse, jnp.float32), "offset": jnp.zeros(())}


def roughness(params):
    c = params["coarse"]
    return jnp.sum(jnp.diff(c, axis=0) ** 2) + jnp.sum(jnp.diff(c, axis=1) ** 2)


class Descent:
    """One start of the optimiser with early stopping on the misfit."""

    def __init__(self, model, measured, seed):
        self.p, self.model = model.p, model
        key = jax.random.key(seed)
        self.params = {"coarse": jax.random.normal(key, (self.p.knots, self.p.knots)), "offset": jnp.zeros(())}
        schedule = optax.cosine_decay_schedule(self.p.lr, self.p.iterations)
        self.opt = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))
        self.opt_state = self.opt.init(self.params)

        def misfit(params):
            gap = model.boundary(params) - measured
            return jnp.mean(gap ** 2) / jnp.var(measured) + self.p.smooth * roughness(params)

        self.value_and_grad = jax.jit(jax.value_and_grad(misfit))

    def run(self):
        trace = []
        for it in range(self.p.iterations):
            loss, grads = self.value_and_grad(self.params)
            updates, self.opt_state = self.opt.update(grads, self.opt_state, self.params)
            self.params = optax.apply_updates(self.params, updates)
            trace.append(loss)
        return np.asarray(jax.device_get(trace))


def main():
    p = Problem()
    model = HeatModel(p)
    truth = true_map(p, 1)
    clean = jax.jit(model.boundary)(truth)
    rng = np.random.default_rng(2)
    measured = clean + jnp.asarray(rng.normal(0, 0.01 * float(clean.std()), clean.shape), jnp.float32)
    target = np.asarray(model.conductivity(truth))
    start, results = time.perf_counter(), []
    for seed in range(p.starts):
        descent = Descent(model, measured, seed)
        trace = descent.run()
        error = np.abs(np.asarray(model.conductivity(descent.params)) - target).mean()
        results.append((trace[-1], error))
        print(f"start {seed}  misfit {trace[0]:.3f} -> {trace[-1]:.4f}  map error {error:.3f}  "
              f"{time.perf_counter() - start:.1f} s")
    best = min(results)
    print(f"best misfit {best[0]:.4f}, its map error {best[1]:.3f}")


if __name__ == "__main__":
    main()
