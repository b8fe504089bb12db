"""Deep ensemble for wind-farm power curves, one group of members per device."""
import collections
import time

import jax

jax.config.update("jax_num_cpu_devices", 4)

import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec as P

N_MEMBERS = 8
WIDTH = 32
BATCH = 64
STEPS = 150
ROUNDS = 4
EMA_DECAY = 0.99
BINS = (0.1, 0.3, 0.5, 0.7, 0.9)

Split = collections.namedtuple("Split", "features power")


def make_farm(seed, n):
    """Speed, direction, air density, turbulence -> share of the rated power."""
    rng = np.random.default_rng(seed)
    speed = rng.weibull(2.0, n) * 9
    direction = rng.uniform(0, 2 * np.pi, n)
    density = rng.normal(1.22, 0.04, n)
    turbulence = rng.gamma(2.0, 0.05, n)
    wake = 1 - 0.25 * np.exp(-((direction - 1.5) / 0.3) ** 2)
    effective = speed * wake * (density / 1.22) ** (1 / 3)
    power = np.clip(1 / (1 + np.exp(-(effective - 8.5))), 0, 1) + turbulence * rng.normal(0, 0.3, n)
    features = np.stack([speed / 10, np.sin(direction), np.cos(direction), density - 1.22, turbulence], 1)
    return Split(features.astype(np.float32), power.astype(np.float32))


def init_member(key):
    sizes = (5, WIDTH, WIDTH, 2)
    keys = jax.random.split(key, len(sizes) - 1)
    return [{"w": jax.random.normal(k, (a, b)) * jnp.sqrt(2 / a), "b": jnp.zeros(b)}
            for k, a, b in zip(keys, sizes[:-1], sizes[1:])]


def forward(params, x):
    for layer in params[:-1]:
        x = jax.nn.silu(x @ layer["w"] + layer["b"])
    out = x @ params[-1]["w"] + params[-1]["b"]
    return out[:, 0], jax.nn.softplus(out[:, 1]) + 1e-3


def nll(params, x, y):
    mean, scale = forward(params, x)
    return jnp.mean(jnp.log(scale) + 0.5 * ((y - mean) / scale) ** 2)


class Ensemble:
    def __init__(self, mesh, seed):
        self.members = NamedSharding(mesh, P("member"))
        self.replicated = NamedSharding(mesh, P())
        self.tx = optax.adam(3e-3)
        keys = jax.random.split(jax.random.key(seed), N_MEMBERS)
        init = jax.jit(lambda k: (lambda p: (p, jax.vmap(self.tx.init)(p)))(jax.vmap(init_member)(k)),
                       out_shardings=self.members)
        self.params, self.opt_state = init(keys)
        self.ema = self.params
        self._step = jax.jit(jax.vmap(self._member_step), out_shardings=self.members)
        self._predict = jax.jit(jax.vmap(forward, in_axes=(0, None)), out_shardings=self.replicated)

    def _member_step(self, params, opt_state, ema, x, y):
        loss, grads = jax.value_and_grad(nll)(params, x, y)
        updates, opt_state = self.tx.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        ema = jax.tree.map(lambda e, p: EMA_DECAY * e + (1 - EMA_DECAY) * p, ema, params)
        return params, opt_state, ema, loss

    def step(self, x, y):
        x, y = jax.device_put((x, y), self.members)
        self.params, self.opt_state, self.ema, loss = self._step(self.params, self.opt_state, self.ema, x, y)
        return loss

    def predict(self, x):
        mean, scale = self._predict(self.ema, jax.device_put(x, self.replicated))
        total = jnp.mean(mean, 0)
        return total, jnp.sqrt(jnp.mean(scale ** 2 + mean ** 2, 0) - total ** 2)


def bootstrap_batches(rng, split, steps):
    for _ in range(steps):
        idx = rng.integers(0, len(split.power), size=(N_MEMBERS, BATCH))
        yield split.features[idx], split.power[idx]


def coverage(mean, spread, power):
    z = np.abs(np.asarray(mean) - power) / np.asarray(spread)
    return {b: float((z < b * 2).mean()) for b in BINS}


def main():
    mesh = jax.make_mesh((len(jax.devices()),), ("member",))
    train, val = make_farm(0, 6000), make_farm(1, 512)
    rng = np.random.default_rng(2)
    ensemble = Ensemble(mesh, seed=31)
    for round_ in range(ROUNDS):
        t0 = time.perf_counter()
        losses = [ensemble.step(x, y) for x, y in bootstrap_batches(rng, train, STEPS)]
        mean, spread = ensemble.predict(val.features)
        rmse = float(np.sqrt(np.mean((np.asarray(mean) - val.power) ** 2)))
        covered = coverage(mean, spread, val.power)
        print(f"round {round_} nll {float(jnp.stack(losses[-20:]).mean()):.3f} rmse {rmse:.3f} "
              f"inside one sigma {covered[0.5]:.2f} ({time.perf_counter() - t0:.1f}s)")
        del losses


if __name__ == "__main__":
    main()
