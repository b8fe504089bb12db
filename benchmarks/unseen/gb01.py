"""Discrete autoencoder (Gumbel-softmax) for windows of a vibration sensor, in Equinox."""
import math
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

WINDOW, SLOTS, CODES, HIDDEN = 128, 8, 48, 48
BATCH, STEPS, ANNEAL_EVERY = 64, 250, 62


def make_windows(n, rng):
    t = np.arange(WINDOW) / WINDOW
    kinds = rng.integers(0, 6, n)
    freq = 3 + 2 * kinds[:, None] + rng.normal(0, 0.2, (n, 1))
    phase = rng.uniform(0, 2 * np.pi, (n, 1))
    x = np.sin(2 * np.pi * freq * t + phase) * rng.uniform(0.6, 1.4, (n, 1))
    knock = (kinds == 5)[:, None] * (rng.random((n, WINDOW)) < 0.03) * 2.5
    return (x + knock + 0.05 * rng.normal(size=x.shape)).astype(np.float32)


class Encoder(eqx.Module):
    frame: eqx.nn.Linear
    mixer: eqx.nn.Linear
    head: eqx.nn.Linear

    def __init__(self, key):
        k = jax.random.split(key, 3)
        self.frame = eqx.nn.Linear(WINDOW // SLOTS, HIDDEN, key=k[0])
        self.mixer = eqx.nn.Linear(SLOTS * HIDDEN, 2 * HIDDEN, key=k[1])
        self.head = eqx.nn.Linear(2 * HIDDEN, SLOTS * CODES, key=k[2])

    def __call__(self, x):
        h = jax.nn.gelu(jax.vmap(self.frame)(x.reshape(SLOTS, -1)))
        h = jax.nn.gelu(self.mixer(h.reshape(-1)))
        return self.head(h).reshape(SLOTS, CODES)


class DiscreteAE(eqx.Module):
    encoder: Encoder
    codebook: jax.Array
    decoder: eqx.nn.MLP

    def __init__(self, key):
        a, b, c = jax.random.split(key, 3)
        self.encoder = Encoder(a)
        self.codebook = 0.3 * jax.random.normal(b, (SLOTS, CODES, 16))
        self.decoder = eqx.nn.MLP(SLOTS * 16, WINDOW, 192, 2, activation=jax.nn.gelu, key=c)

    def __call__(self, x, tau, key):
        logits = self.encoder(x)
        gumbel = jax.random.gumbel(key, logits.shape)
        soft = jax.nn.softmax((logits + gumbel) / tau, axis=-1)
        embed = jnp.einsum("sc,scd->sd", soft, self.codebook)
        return self.decoder(embed.reshape(-1)), logits


def objective(model, x, tau, key):
    keys = jax.random.split(key, x.shape[0])
    recon, logits = jax.vmap(model, in_axes=(0, None, 0))(x, tau, keys)
    q = jax.nn.softmax(logits)
    kl = jnp.mean(jnp.sum(q * (jnp.log(q + 1e-9) + math.log(CODES)), axis=(1, 2)))
    mse = jnp.mean((recon - x) ** 2)
    return mse + 1e-4 * kl, (mse, jnp.argmax(logits, -1))


@eqx.filter_jit
def train_step(model, opt_state, x, tau, key, optim):
    (loss, (mse, codes)), grads = eqx.filter_value_and_grad(objective, has_aux=True)(model, x, tau, key)
    updates, opt_state = optim.update(grads, opt_state, eqx.filter(model, eqx.is_array))
    return eqx.apply_updates(model, updates), opt_state, loss, mse, codes


class UsageMeter:
    """How many of the codes are in use: a collapsed codebook shows here first."""

    def __init__(self):
        self.counts = np.zeros(CODES)

    def update(self, codes):
        self.counts += np.bincount(np.asarray(codes).ravel(), minlength=CODES)

    def perplexity(self):
        p = self.counts / self.counts.sum()
        return float(np.exp(-(p * np.log(p + 1e-12)).sum()))


def main():
    rng = np.random.default_rng(3)
    train, held = make_windows(4096, rng), make_windows(512, rng)
    key = jax.random.key(0)
    key, sub = jax.random.split(key)
    model = DiscreteAE(sub)
    optim = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))
    opt_state = optim.init(eqx.filter(model, eqx.is_array))
    evaluate = eqx.filter_jit(objective)
    tau, meter, began = 2.0, UsageMeter(), time.time()
    for step in range(STEPS):
        if step % ANNEAL_EVERY == 0:
            tau = max(0.3, 2.0 * math.exp(-step / 120))
        x = train[rng.integers(0, len(train), BATCH)]
        key, sub = jax.random.split(key)
        model, opt_state, loss, mse, codes = train_step(model, opt_state, x, tau, sub, optim)
        if step % 5 == 0:
            meter.update(codes)
        if (step + 1) % 50 == 0:
            print(f"step {step + 1:4d}  loss {float(loss):.4f}  mse {float(mse):.4f}  tau {tau:.2f}  "
                  f"code perplexity {meter.perplexity():.1f}  ({time.time() - began:.1f} s)")
            meter = UsageMeter()
    _, (mse, _) = evaluate(model, held, jnp.float32(0.3), key)
    print(f"held-out mse {float(mse):.4f} (variance {held.var():.4f})")


if __name__ == "__main__":
    main()
