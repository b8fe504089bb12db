"""Electric load forecasting with a data-parallel MLP-mixer on four (virtual) devices.

The batch is split over the mesh, weights are replicated; training stops early when the
validation error no longer falls.
"""
import time
from functools import partial

import jax

jax.config.update("jax_num_cpu_devices", 4)

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

CONTEXT, HORIZON, SERIES, HOURS = 96, 24, 30, 1600


def load_curves(seed):
    rng = np.random.default_rng(seed)
    t = np.arange(HOURS)
    day = np.sin(2 * np.pi * (t / 24 + rng.random((SERIES, 1))))
    week = 0.4 * np.sin(2 * np.pi * (t / 168 + rng.random((SERIES, 1))))
    drift = np.cumsum(0.02 * rng.normal(size=(SERIES, HOURS)), axis=1)
    spikes = (rng.random((SERIES, HOURS)) < 0.01) * rng.exponential(1.0, (SERIES, HOURS))
    return (day * (1 + 0.3 * week) + week + drift + spikes + 0.1 * rng.normal(size=day.shape)).astype(np.float32)


def windows(series, starts):
    idx = starts[:, 1:] + np.arange(CONTEXT + HORIZON)
    chunk = series[starts[:, :1], idx]
    return chunk[:, :CONTEXT], chunk[:, CONTEXT:]


class Mixer(nnx.Module):
    def __init__(self, rngs, dim=64, patch=12, depth=3):
        self.patch = patch
        n = CONTEXT // patch
        self.embed = nnx.Linear(patch, dim, rngs=rngs)
        self.time = nnx.List([nnx.Linear(n, n, rngs=rngs) for _ in range(depth)])
        self.chan = nnx.List([nnx.Linear(dim, dim, rngs=rngs) for _ in range(depth)])
        self.norms = nnx.List([nnx.LayerNorm(dim, rngs=rngs) for _ in range(depth)])
        self.head = nnx.Linear(n * dim, HORIZON, rngs=rngs)

    def __call__(self, x):
        mean, std = x.mean(1, keepdims=True), x.std(1, keepdims=True) + 1e-3
        h = self.embed(((x - mean) / std).reshape(len(x), -1, self.patch))
        for time_mix, chan_mix, norm in zip(self.time, self.chan, self.norms):
            h = h + nnx.gelu(time_mix(norm(h).swapaxes(1, 2))).swapaxes(1, 2)
            h = h + nnx.gelu(chan_mix(h))
        return self.head(h.reshape(len(x), -1)) * std + mean


def main(epochs=12, batch=128, patience=2):
    mesh = Mesh(np.array(jax.devices()), ("data",))
    rows, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
    rng = np.random.default_rng(0)
    series = load_curves(1)
    cut = HOURS - 400
    last = HOURS - CONTEXT - HORIZON
    every = np.array([(s, t) for s in range(SERIES) for t in range(cut, last, 24)])
    valid = [jax.device_put(windows(series, every[i : i + batch]), rows) for i in range(0, len(every) // batch * batch, batch)]

    graph, params = nnx.split(Mixer(nnx.Rngs(0)))
    tx = optax.adamw(optax.exponential_decay(2e-3, 400, 0.8))
    params, opt = jax.device_put((params, tx.init(params)), whole)

    def error(params, x, y):
        return jnp.mean(jnp.abs(nnx.merge(graph, params)(x) - y))

    @partial(jax.jit, donate_argnums=(0, 1), out_shardings=whole)
    def train(params, opt, x, y):
        loss, grads = jax.value_and_grad(error)(params, x, y)
        upd, opt = tx.update(grads, opt, params)
        return optax.apply_updates(params, upd), opt, loss

    evaluate = jax.jit(error, out_shardings=whole)
    best, bad = np.inf, 0
    for epoch in range(epochs):
        start, losses = time.perf_counter(), []
        for _ in range(120):
            starts = np.stack([rng.integers(0, SERIES, batch), rng.integers(0, cut - CONTEXT - HORIZON, batch)], axis=1)
            x, y = jax.device_put(windows(series, starts), rows)
            params, opt, loss = train(params, opt, x, y)
            losses.append(loss)
        score = float(np.mean(jax.device_get([evaluate(params, x, y) for x, y in valid])))
        loss = float(jnp.stack(losses).mean())
        print(f"epoch {epoch}: train {loss:.3f}  valid {score:.4f}  {time.perf_counter() - start:.1f} s")
        best, bad = (score, 0) if score < best - 1e-4 else (best, bad + 1)
        if bad >= patience:
            print("no further progress, stopping")
            break


if __name__ == "__main__":
    main()
