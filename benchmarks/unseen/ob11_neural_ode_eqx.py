"""Neural ODE for spiral trajectories in equinox, trained on short then long horizons."""
import pathlib
import tempfile
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

HORIZONS = ((300, 20), (300, 60))


def spirals(count, length, seed):
    rng = np.random.default_rng(seed)
    ts = np.linspace(0, 4, length)
    y0 = rng.uniform(-0.6, 1.0, (count, 2))
    a = np.array([[-0.15, 2.0], [-2.0, -0.15]])
    vals, vecs = np.linalg.eig(a)
    prop = np.real(np.einsum("ij,tj,jk->tik", vecs, np.exp(ts[:, None] * vals), np.linalg.inv(vecs)))
    ys = np.einsum("tik,nk->nti", prop, y0)
    return ts.astype(np.float32), (ys + 0.02 * rng.normal(size=ys.shape)).astype(np.float32)


class Field(eqx.Module):
    mlp: eqx.nn.MLP
    scale: jax.Array

    def __init__(self, width, key):
        self.mlp = eqx.nn.MLP(2, 2, width, 2, activation=jax.nn.softplus, final_activation=jnp.tanh, key=key)
        self.scale = jnp.ones(())

    def __call__(self, y):
        return self.scale * self.mlp(y)


class NeuralODE(eqx.Module):
    field: Field
    substeps: int = eqx.field(static=True)

    def __call__(self, ts, y0):
        def rk4(y, dt):
            k1 = self.field(y)
            k2 = self.field(y + 0.5 * dt * k1)
            k3 = self.field(y + 0.5 * dt * k2)
            k4 = self.field(y + dt * k3)
            return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

        def interval(y, dt):
            h = dt / self.substeps
            y = jax.lax.fori_loop(0, self.substeps, lambda _, v: rk4(v, h), y)
            return y, y

        _, ys = jax.lax.scan(interval, y0, jnp.diff(ts))
        return jnp.concatenate([y0[None], ys])


def mse(model, ts, ys):
    pred = jax.vmap(model, in_axes=(None, 0))(ts, ys[:, 0])
    return jnp.mean((pred - ys) ** 2)


class Fit:
    """Owns model and optimiser; the last checkpoint is the best one by held-out error."""

    def __init__(self, model, lr, folder):
        self.opt = optax.chain(optax.clip_by_global_norm(1.0), optax.adabelief(lr))
        self.params, self.static = eqx.partition(model, eqx.is_inexact_array)
        self.opt_state = self.opt.init(self.params)
        self.best, self.folder = np.inf, folder
        opt, static = self.opt, self.static

        def step(params, opt_state, ts, ys):
            loss, grads = jax.value_and_grad(lambda p: mse(eqx.combine(p, static), ts, ys))(params)
            updates, opt_state = opt.update(grads, opt_state, params)
            return eqx.apply_updates(params, updates), opt_state, loss

        self.step = jax.jit(step, donate_argnums=(0, 1))
        self.held_out = jax.jit(lambda params, ts, ys: mse(eqx.combine(params, static), ts, ys))

    @property
    def model(self):
        return eqx.combine(self.params, self.static)

    def update(self, ts, ys):
        self.params, self.opt_state, loss = self.step(self.params, self.opt_state, ts, ys)
        return loss

    def checkpoint(self, ts, ys):
        error = float(self.held_out(self.params, ts, ys))
        if error < self.best:
            self.best = error
            eqx.tree_serialise_leaves(self.folder / "best.eqx", self.model)
        return error


def main(batch=32):
    ts, train = spirals(512, 60, 0)
    _, test = spirals(64, 60, 1)
    folder = pathlib.Path(tempfile.mkdtemp())
    fit = Fit(NeuralODE(Field(48, jr.key(0)), substeps=2), 2e-3, folder)
    rng = np.random.default_rng(2)
    start, done = time.perf_counter(), 0
    for steps, horizon in HORIZONS:
        print(f"horizon {horizon}")
        for _ in range(steps):
            rows = rng.integers(0, len(train), batch)
            loss = fit.update(ts[:horizon], train[rows, :horizon])
            done += 1
            if done % 50 == 0:
                print(f"step {done} loss {float(loss):.5f} {done / (time.perf_counter() - start):.0f} steps/s")
            if done % 150 == 0:
                print(f"   held-out {fit.checkpoint(ts, test):.5f}")
    restored = eqx.tree_deserialise_leaves(folder / "best.eqx", fit.model)
    curve = np.asarray(eqx.filter_jit(restored)(ts, test[0, 0]))
    print("end point", curve[-1].round(3), "measured", test[0, -1].round(3))


if __name__ == "__main__":
    main()
