"""Poisson VAE for single-cell counts, trained across donors, with an importance-weighted
likelihood on held-out cells of every donor after each epoch (Equinox + optax)."""
import math
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax.scipy.special import gammaln


@dataclass(frozen=True)
class Settings:
    genes: int = 160
    latent: int = 8
    hidden: int = 64
    donors: int = 8
    cells_per_donor: int = 420
    held_out: int = 60
    batch: int = 120
    epochs: int = 7
    warmup: int = 5
    samples: int = 8
    lr: float = 2e-3


def simulate(cfg, rng):
    """Cells of five types; every donor shifts a few genes and has its own depth."""
    types = rng.gamma(0.6, 1.0, size=(5, cfg.genes)) + 0.02
    train, test = [], []
    for _ in range(cfg.donors):
        shift = np.exp(rng.normal(0, 0.25, cfg.genes))
        z = rng.integers(0, 5, cfg.cells_per_donor)
        rate = types[z] * shift
        depth = rng.lognormal(math.log(400.0), 0.3, (cfg.cells_per_donor, 1))
        mean = depth * rate / rate.sum(1, keepdims=True)
        counts = rng.poisson(mean).astype(np.float32)
        train.append(counts[cfg.held_out:])
        test.append(counts[:cfg.held_out])
    return np.concatenate(train), np.stack(test)


class CellVAE(eqx.Module):
    encoder: eqx.nn.MLP
    decoder: eqx.nn.MLP
    latent: int = eqx.field(static=True)

    def __init__(self, cfg, key):
        k1, k2 = jr.split(key)
        self.encoder = eqx.nn.MLP(cfg.genes, 2 * cfg.latent, cfg.hidden, 2, jax.nn.silu, key=k1)
        self.decoder = eqx.nn.MLP(cfg.latent, cfg.genes, cfg.hidden, 2, jax.nn.silu, key=k2)
        self.latent = cfg.latent

    def posterior(self, x):
        h = self.encoder(jnp.log1p(x))
        return h[: self.latent], jnp.clip(h[self.latent:], -6.0, 3.0)

    def log_likelihood(self, x, z):
        mu = jax.nn.softmax(self.decoder(z)) * x.sum() + 1e-6
        return jnp.sum(x * jnp.log(mu) - mu - gammaln(x + 1.0))


def elbo_terms(model, x, key):
    m, s = model.posterior(x)
    z = m + jnp.exp(s) * jr.normal(key, m.shape)
    kl = 0.5 * jnp.sum(m**2 + jnp.exp(2 * s) - 2 * s - 1.0)
    return model.log_likelihood(x, z), kl


def make_step(optim):
    @eqx.filter_jit
    def step(model, opt_state, x, key, beta):
        def objective(m):
            ll, kl = jax.vmap(elbo_terms, in_axes=(None, 0, 0))(m, x, jr.split(key, x.shape[0]))
            return -jnp.mean(ll - beta * kl)

        loss, grads = eqx.filter_value_and_grad(objective)(model)
        updates, opt_state = optim.update(grads, opt_state, eqx.filter(model, eqx.is_array))
        return eqx.apply_updates(model, updates), opt_state, loss

    return step


def importance_weighted(model, cells, key, samples):
    """log p(x) with `samples` draws from the posterior, mean over the cells."""
    mean, logstd = jax.vmap(model.posterior)(cells)
    weights = []
    for k in jr.split(key, samples):
        eps = jr.normal(k, mean.shape)
        z = mean + jnp.exp(logstd) * eps
        log_prior = -0.5 * jnp.sum(z**2, axis=-1)
        log_q = -0.5 * jnp.sum(eps**2, axis=-1) - jnp.sum(logstd, axis=-1)
        weights.append(jax.vmap(model.log_likelihood)(cells, z) + log_prior - log_q)
    return jnp.mean(jax.nn.logsumexp(jnp.stack(weights), axis=0) - math.log(samples))


def main():
    cfg = Settings()
    rng = np.random.default_rng(3)
    train, test = simulate(cfg, rng)
    train, test = jnp.asarray(train), jnp.asarray(test)
    key, init = jr.split(jr.key(0))
    model = CellVAE(cfg, init)
    optim = optax.chain(optax.clip_by_global_norm(5.0), optax.adam(cfg.lr))
    opt_state = optim.init(eqx.filter(model, eqx.is_array))
    step = make_step(optim)
    for epoch in range(cfg.epochs):
        beta = min(1.0, (epoch + 1) / cfg.warmup)
        order = rng.permutation(len(train))
        total = jnp.zeros(())
        for i in range(0, len(order) - cfg.batch + 1, cfg.batch):
            key, sub = jr.split(key)
            model, opt_state, loss = step(model, opt_state, train[order[i:i + cfg.batch]], sub, beta)
            total += loss
        key, *subs = jr.split(key, cfg.donors + 1)
        scores = [importance_weighted(model, cells, k, cfg.samples) for cells, k in zip(test, subs)]
        print(f"epoch {epoch:2d} beta {beta:.2f} loss {float(total) / (len(order) // cfg.batch):8.2f} "
              f"held-out {np.mean([float(s) for s in scores]):8.2f}")


if __name__ == "__main__":
    main()
