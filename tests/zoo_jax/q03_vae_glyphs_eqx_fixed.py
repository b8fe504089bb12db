"""Beta-VAE over small procedural glyphs with KL warm-up, importance-weighted evaluation (equinox)."""
from __future__ import annotations

import math
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

SIDE, LATENT = 16, 6


def glyphs(n, seed):
    r = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:SIDE, 0:SIDE] / (SIDE - 1.0) * 2 - 1
    out = np.zeros((n, SIDE, SIDE), np.float32)
    for i in range(n):
        ang, off = r.uniform(0, math.pi), r.uniform(-0.5, 0.5)
        stroke = np.abs(np.cos(ang) * xx + np.sin(ang) * yy - off) < 0.15
        ring = np.abs(np.hypot(xx - r.uniform(-.4, .4), yy - r.uniform(-.4, .4)) - r.uniform(.3, .7)) < 0.15
        out[i] = stroke | ring
    return out.reshape(n, -1)


class Encoder(eqx.Module):
    trunk: eqx.nn.MLP
    mu: eqx.nn.Linear
    logvar: eqx.nn.Linear

    def __init__(self, key):
        a, b, c = jr.split(key, 3)
        self.trunk = eqx.nn.MLP(SIDE * SIDE, 96, 96, 1, activation=jax.nn.silu, key=a)
        self.mu = eqx.nn.Linear(96, LATENT, key=b)
        self.logvar = eqx.nn.Linear(96, LATENT, key=c)

    def __call__(self, x):
        h = jax.nn.silu(self.trunk(x))
        return self.mu(h), self.logvar(h)


class VAE(eqx.Module):
    encoder: Encoder
    decoder: eqx.nn.MLP

    def __init__(self, key):
        a, b = jr.split(key)
        self.encoder = Encoder(a)
        self.decoder = eqx.nn.MLP(LATENT, SIDE * SIDE, 96, 2, activation=jax.nn.silu, key=b)

    def log_px(self, z, x):
        logits = self.decoder(z)
        return -optax.sigmoid_binary_cross_entropy(logits, x).sum()


def negative_elbo(model, xs, key, beta):
    def one(x, k):
        mu, logvar = model.encoder(x)
        z = mu + jnp.exp(0.5 * logvar) * jr.normal(k, mu.shape)
        kl = 0.5 * jnp.sum(jnp.exp(logvar) + mu**2 - 1 - logvar)
        return -model.log_px(z, x), kl

    rec, kl = jax.vmap(one)(xs, jr.split(key, xs.shape[0]))
    return jnp.mean(rec + beta * kl), (rec.mean(), kl.mean())


class Trainer:
    def __init__(self, model, lr, total_steps, warmup):
        self.opt = optax.adam(optax.cosine_decay_schedule(lr, total_steps))
        self.opt_state = self.opt.init(eqx.filter(model, eqx.is_inexact_array))
        self.model = model
        self.warmup = warmup
        self.step = 0
        opt = self.opt

        @eqx.filter_jit
        def update(model, opt_state, xs, key, beta):
            (loss, parts), grads = eqx.filter_value_and_grad(negative_elbo, has_aux=True)(model, xs, key, beta)
            updates, opt_state = opt.update(grads, opt_state)
            return eqx.apply_updates(model, updates), opt_state, loss, parts

        self._update = update

    def beta(self):
        return np.float32(min(1.0, self.step / self.warmup))

    def fit_batch(self, xs, key):
        self.model, self.opt_state, loss, parts = self._update(
            self.model, self.opt_state, xs, key, jnp.asarray(self.beta()))
        self.step += 1
        return loss, parts


@eqx.filter_jit
def iwae_bound(model, xs, key, samples=24):
    """Importance-weighted bound, the samples one after another to spare memory."""
    mu, logvar = jax.vmap(model.encoder)(xs)
    std = jnp.exp(0.5 * logvar)

    def weight(k):
        eps = jr.normal(k, mu.shape)
        z = mu + std * eps
        log_p = jax.vmap(model.log_px)(z, xs) - 0.5 * jnp.sum(z**2, -1)
        log_q = -0.5 * jnp.sum(eps**2, -1) - 0.5 * jnp.sum(logvar, -1)
        return log_p - log_q

    log_w = jax.lax.map(weight, jr.split(key, samples))
    return jnp.mean(jax.nn.logsumexp(log_w, axis=0) - math.log(samples))


def main(epochs=8, batch=64):
    train, test = glyphs(1600, 0), jnp.asarray(glyphs(128, 1))
    key = jr.key(11)
    key, sub = jr.split(key)
    per_epoch = len(train) // batch
    trainer = Trainer(VAE(sub), 3e-3, epochs * per_epoch, warmup=10)
    order_rng = np.random.default_rng(2)
    for epoch in range(epochs):
        t0 = time.time()
        order = order_rng.permutation(len(train))
        running = []
        for chunk in np.split(order[:per_epoch * batch], per_epoch):
            key, sub = jr.split(key)
            loss, _ = trainer.fit_batch(train[chunk], sub)
            running.append(loss)
        key, sub = jr.split(key)
        bound = iwae_bound(trainer.model, test, sub)
        print(f"[{epoch:02d}] loss {np.mean(jax.device_get(running)):8.3f}  "
              f"iwae {float(bound):8.3f}  beta {trainer.beta():.2f}  {time.time() - t0:5.2f}s", flush=True)


if __name__ == "__main__":
    main()
