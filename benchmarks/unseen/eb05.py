"""RealNVP fitted to posterior samples of an orbital problem (synthetic), flax linen."""
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

EPOCHS = 14
BATCH = 512


class Coupling(nn.Module):
    """Affine coupling; `flip` swaps the halves."""
    hidden: int
    flip: bool

    @nn.compact
    def __call__(self, x):
        d = x.shape[-1] // 2
        a, b = (x[..., d:], x[..., :d]) if self.flip else (x[..., :d], x[..., d:])
        h = nn.gelu(nn.Dense(self.hidden)(a))
        h = nn.gelu(nn.Dense(self.hidden)(h))
        shift, log_s = jnp.split(nn.Dense(2 * d, kernel_init=nn.initializers.zeros)(h), 2, -1)
        log_s = 2.0 * jnp.tanh(log_s / 2.0)
        b = b * jnp.exp(log_s) + shift
        out = jnp.concatenate([b, a] if self.flip else [a, b], -1)
        return out, log_s.sum(-1)


class Flow(nn.Module):
    layers: int = 8
    hidden: int = 48

    @nn.compact
    def __call__(self, x):
        total = jnp.zeros(x.shape[0])
        for i in range(self.layers):
            x, ld = Coupling(self.hidden, bool(i % 2))(x)
            total += ld
        return x, total


def simulate_orbits(n, rng):
    """(log period, e cos w, e sin w, log K, phase, inclination) with correlations."""
    e = rng.beta(1.2, 3.0, n)
    w = rng.vonmises(0.7, 2.0, n)
    logp = 1.5 + 0.4 * rng.standard_normal(n) + 0.8 * e
    inc = np.arccos(rng.uniform(0, 1, n))
    logk = np.log(np.sin(inc) + 0.02) - logp / 3 + 0.1 * rng.standard_normal(n)
    phase = (w + 0.3 * rng.standard_normal(n)) / np.pi
    x = np.stack([logp, e * np.cos(w), e * np.sin(w), logk, phase, inc], -1)
    return ((x - x.mean(0)) / x.std(0)).astype(np.float32)


def log_prob(flow, params, x):
    z, ld = flow.apply(params, x)
    return -0.5 * (z ** 2 + jnp.log(2 * jnp.pi)).sum(-1) + ld


def make_update(flow, optimizer):
    @jax.jit
    def update(params, state, batch):
        def loss(p):
            return -log_prob(flow, p, batch).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    return update


@partial(jax.jit, static_argnums=0)
def evaluate(flow, params, x):
    return log_prob(flow, params, x).mean()


class Plateau:
    """Halves the rate when the validation score stops getting better."""

    def __init__(self, lr, factor=0.8, tolerance=0.02):
        self.lr, self.factor, self.tolerance, self.best = lr, factor, tolerance, -np.inf

    def __call__(self, score):
        if score < self.best + self.tolerance:
            self.lr *= self.factor
        self.best = max(self.best, score)
        return self.lr


def fit(train, valid, seed=0):
    flow = Flow()
    params = flow.init(jax.random.key(seed), train[:2])
    plateau = Plateau(2e-3)
    state = optax.adamw(plateau.lr).init(params)
    rng = np.random.default_rng(seed)
    valid = jnp.asarray(valid)
    for epoch in range(EPOCHS):
        update = make_update(flow, optax.chain(optax.clip_by_global_norm(5.0),
                                               optax.adamw(plateau.lr)))
        if epoch == 0:
            state = (optax.EmptyState(), state)
        order = rng.permutation(len(train))
        losses = []
        for i in range(0, len(order) - BATCH + 1, BATCH):
            params, state, value = update(params, state, train[order[i:i + BATCH]])
            losses.append(value)
        score = float(evaluate(flow, params, valid))
        print(f"epoch {epoch:2d}  train {float(jnp.stack(losses).mean()):.3f}  "
              f"valid {-score:.3f}  lr {plateau.lr:.2e}")
        plateau(score)
    return flow, params


if __name__ == "__main__":
    rng = np.random.default_rng(5)
    data = simulate_orbits(24_000, rng)
    flow, params = fit(data[:20_000], data[20_000:])
    z, _ = jax.jit(flow.apply)(params, data[20_000:])
    z = np.asarray(z)
    print("latent mean", z.mean(0).round(2), "std", z.std(0).round(2))
