"""scVI-style VAE for single-cell RNA counts: negative binomial likelihood, batch covariate, flax.linen."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from jax.scipy.special import gammaln

GENES = 600
LATENT = 10
DONORS = 3
BATCH = 128
EPOCHS = 160
WARMUP = 40
STAGES = ((256, 64), (384, 96))       # two encoder sizes are compared


def simulate(n, seed):
    rng = np.random.default_rng(seed)
    kinds = rng.integers(6, size=n)
    donor = rng.integers(DONORS, size=n)
    profile = rng.gamma(0.5, 1.0, (6, GENES))
    shift = np.exp(0.3 * rng.normal(size=(DONORS, GENES)))
    mean = profile[kinds] * shift[donor]
    mean *= rng.lognormal(7.0, 0.3, (n, 1)) / mean.sum(1, keepdims=True)
    counts = rng.poisson(rng.gamma(2.0, mean / 2.0))
    return counts.astype(np.float32), donor.astype(np.int32), kinds


class Encoder(nn.Module):
    widths: tuple

    @nn.compact
    def __call__(self, x, donor):
        h = jnp.concatenate([jnp.log1p(x), nn.one_hot(donor, DONORS)], -1)
        for width in self.widths:
            h = nn.relu(nn.LayerNorm()(nn.Dense(width)(h)))
        return nn.Dense(LATENT)(h), nn.Dense(LATENT)(h)


class Decoder(nn.Module):
    widths: tuple

    @nn.compact
    def __call__(self, z, donor, library):
        h = jnp.concatenate([z, nn.one_hot(donor, DONORS)], -1)
        for width in self.widths[::-1]:
            h = nn.relu(nn.LayerNorm()(nn.Dense(width)(h)))
        theta = self.param("theta", nn.initializers.zeros, (GENES,))
        return library * nn.softmax(nn.Dense(GENES)(h)), jnp.exp(theta)


class ScVAE(nn.Module):
    widths: tuple

    def setup(self):
        self.encoder = Encoder(self.widths)
        self.decoder = Decoder(self.widths)

    def __call__(self, x, donor, key):
        mu, logvar = self.encoder(x, donor)
        z = mu + jnp.exp(0.5 * logvar) * jax.random.normal(key, mu.shape)
        rate, theta = self.decoder(z, donor, x.sum(-1, keepdims=True))
        return mu, logvar, rate, theta

    def embed(self, x, donor):
        return self.encoder(x, donor)[0]


def log_nb(x, mu, theta):
    log_sum = jnp.log(theta + mu + 1e-8)
    return (gammaln(x + theta) - gammaln(theta) - gammaln(x + 1)
            + theta * (jnp.log(theta + 1e-8) - log_sum) + x * (jnp.log(mu + 1e-8) - log_sum))


def build(widths):
    model = ScVAE(widths)
    tx = optax.chain(optax.clip_by_global_norm(10.0), optax.adamw(1e-3, weight_decay=1e-4))

    def elbo(params, x, donor, key, beta):
        mu, logvar, rate, theta = model.apply(params, x, donor, key)
        kl = 0.5 * jnp.sum(mu ** 2 + jnp.exp(logvar) - 1 - logvar, -1)
        return jnp.mean(beta * kl - log_nb(x, rate, theta).sum(-1))

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def run_epoch(params, opt_state, counts, donor, key, beta):
        shuffle, noise = jax.random.split(key)
        order = jax.random.permutation(shuffle, counts.shape[0])
        order = order[: counts.shape[0] // BATCH * BATCH].reshape(-1, BATCH)

        def body(carry, step):
            params, opt_state = carry
            idx, k = step
            loss, grads = jax.value_and_grad(elbo)(params, counts[idx], donor[idx], k, beta)
            updates, opt_state = tx.update(grads, opt_state, params)
            return (optax.apply_updates(params, updates), opt_state), loss

        keys = jax.random.split(noise, order.shape[0])
        (params, opt_state), losses = jax.lax.scan(body, (params, opt_state), (order, keys))
        return params, opt_state, losses.mean()

    embed = jax.jit(functools.partial(model.apply, method=ScVAE.embed))
    return jax.jit(model.init), tx, run_epoch, embed


def purity(z, kinds, k=10):
    """Share of the nearest neighbours of the same cell type."""
    near = np.argsort(((z[:, None] - z[None]) ** 2).sum(-1), axis=1)[:, 1:k + 1]
    return float((kinds[near] == kinds[:, None]).mean())


def main():
    counts, donor, kinds = simulate(1500, 0)
    counts_dev, donor_dev = jax.device_put((counts, donor))
    for widths in STAGES:
        init, tx, run_epoch, embed = build(widths)
        key = jax.random.key(11)
        params = init(key, counts_dev[:1], donor_dev[:1], key)
        opt_state = jax.jit(tx.init)(params)
        for epoch in range(EPOCHS):
            key, sub = jax.random.split(key)
            beta = min(1.0, (epoch + 1) / WARMUP)
            params, opt_state, loss = run_epoch(params, opt_state, counts_dev, donor_dev, sub, beta)
            if (epoch + 1) % 20 == 0:
                print(f"{widths} epoch {epoch + 1:3d} -ELBO {float(loss):.1f}", flush=True)
        z = np.asarray(embed(params, counts_dev[:512], donor_dev[:512]))
        print(f"{widths} neighbour purity {purity(z, kinds[:512]):.3f}", flush=True)


if __name__ == "__main__":
    main()
