"""Beta-VAE on synthetic piano-roll bars (binary 16 x 24), in Equinox; importance-weighted likelihood after each stage."""
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

STEPS_PER_BAR, PITCHES, LATENT = 16, 24, 10
CELLS = STEPS_PER_BAR * PITCHES


def make_bars(n, rng):
    """A chord held for half a bar at a time, a bass pulse, and a walking melody."""
    bars = np.zeros((n, STEPS_PER_BAR, PITCHES), np.float32)
    for bar in bars:
        root, pulse, note = rng.integers(0, 7), rng.choice([2, 4]), rng.integers(12, 22)
        bar[::pulse, root] = 1
        for half in (slice(0, 8), slice(8, 16)):
            third = rng.integers(3, 5)
            bar[half, [root + 5, root + 5 + third]] = 1
        for t in range(0, STEPS_PER_BAR, 2):
            bar[t, note] = 1
            note = int(np.clip(note + rng.integers(-1, 2), 12, PITCHES - 1))
    return bars.reshape(n, CELLS)


class Encoder(eqx.Module):
    body: eqx.nn.MLP
    mean: eqx.nn.Linear
    logvar: eqx.nn.Linear

    def __init__(self, key):
        k1, k2, k3 = jax.random.split(key, 3)
        self.body = eqx.nn.MLP(CELLS, 128, 128, 1, activation=jax.nn.silu, key=k1)
        self.mean = eqx.nn.Linear(128, LATENT, key=k2)
        self.logvar = eqx.nn.Linear(128, LATENT, key=k3)

    def __call__(self, x):
        h = jax.nn.silu(self.body(x))
        return self.mean(h), self.logvar(h)


class VAE(eqx.Module):
    encoder: Encoder
    decoder: eqx.nn.MLP

    def __init__(self, key):
        k1, k2 = jax.random.split(key)
        self.encoder = Encoder(k1)
        self.decoder = eqx.nn.MLP(LATENT, CELLS, 128, 2, activation=jax.nn.silu, key=k2)


def bernoulli_log_prob(logits, x):
    return -optax.sigmoid_binary_cross_entropy(logits, x).sum(-1)


def normal_log_prob(z, mean, logvar):
    return -0.5 * (jnp.log(2 * jnp.pi) + logvar + (z - mean) ** 2 / jnp.exp(logvar)).sum(-1)


def negative_elbo(model, batch, key, beta):
    mean, logvar = jax.vmap(model.encoder)(batch)
    z = mean + jnp.exp(0.5 * logvar) * jax.random.normal(key, mean.shape)
    rec = bernoulli_log_prob(jax.vmap(model.decoder)(z), batch)
    kl = 0.5 * (jnp.exp(logvar) + mean ** 2 - 1 - logvar).sum(-1)
    return (beta * kl - rec).mean()


optimizer = optax.adam(2e-3)


@eqx.filter_jit
def train_step(model, opt_state, batch, key, beta):
    loss, grads = eqx.filter_value_and_grad(negative_elbo)(model, batch, key, beta)
    updates, opt_state = optimizer.update(grads, opt_state)
    return eqx.apply_updates(model, updates), opt_state, loss


def importance_bound(model, x, key, draws):
    """log p(x) of a few bars, estimated with `draws` samples from the encoder."""
    mean, logvar = jax.vmap(model.encoder)(x)
    weights = []
    for k in jax.random.split(key, draws):
        z = mean + jnp.exp(0.5 * logvar) * jax.random.normal(k, mean.shape)
        log_w = bernoulli_log_prob(jax.vmap(model.decoder)(z), x)
        log_w += normal_log_prob(z, 0.0, jnp.zeros_like(z)) - normal_log_prob(z, mean, logvar)
        weights.append(log_w)
    return (jax.nn.logsumexp(jnp.stack(weights), axis=0) - np.log(draws)).mean()


def main(stages=6, steps=150, batch=64):
    rng, key = np.random.default_rng(8), jax.random.key(8)
    bars = make_bars(3000, rng)
    train, test = bars[:2800], bars[2800:]
    model = VAE(jax.random.key(1))
    opt_state = optimizer.init(eqx.filter(model, eqx.is_array))
    for stage in range(stages):
        beta = jnp.asarray(min(1.0, 0.25 * (stage + 1)), jnp.float32)      # an array: the step compiles once
        start, losses = time.perf_counter(), []
        for _ in range(steps):
            key, sub = jax.random.split(key)
            picked = train[rng.integers(0, len(train), batch)]
            model, opt_state, loss = train_step(model, opt_state, picked, sub, beta)
            losses.append(loss)
        loss = float(jnp.stack(losses[-50:]).mean())
        trained = time.perf_counter()
        bound = float(importance_bound(model, test, jax.random.key(2), draws=100))
        print(f"stage {stage}: beta {float(beta):.2f}  loss {loss:.2f}  log p >= {bound:.2f}  "
              f"(train {trained - start:.1f} s, bound {time.perf_counter() - trained:.1f} s)")


if __name__ == "__main__":
    main()
