# Variational autoencoder for sperm-whale echolocation clicks, used to group codas by their latent codes.
import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax


@dataclasses.dataclass(frozen=True)
class Config:
    n_train: int = 480
    n_val: int = 64
    samples: int = 128
    latent: int = 6
    batch: int = 48
    epochs: int = 4
    anneal_epochs: int = 3
    lr: float = 2e-3
    seed: int = 3


def synth_clicks(n, samples, rng):
    t = np.arange(samples) / samples
    out = np.zeros((n, 1, samples), np.float32)
    for i in range(n):
        ipi = rng.uniform(0.12, 0.3)
        freq = rng.uniform(12, 30)
        for k, amp in enumerate((1.0, 0.6, 0.35)):
            centre = 0.2 + k * ipi
            out[i, 0] += amp * np.exp(-((t - centre) / 0.02) ** 2) * np.sin(2 * np.pi * freq * (t - centre))
        out[i, 0] += rng.normal(0, 0.03, samples)
    return out


class Encoder(eqx.Module):
    convs: list
    norm: eqx.nn.LayerNorm
    to_stats: eqx.nn.Linear

    def __init__(self, latent, samples, key):
        k1, k2, k3 = jr.split(key, 3)
        self.convs = [
            eqx.nn.Conv1d(1, 8, 7, stride=2, padding=3, key=k1),
            eqx.nn.Conv1d(8, 16, 5, stride=2, padding=2, key=k2),
        ]
        self.norm = eqx.nn.LayerNorm(16 * samples // 4)
        self.to_stats = eqx.nn.Linear(16 * samples // 4, 2 * latent, key=k3)

    def __call__(self, x):
        for conv in self.convs:
            x = jax.nn.gelu(conv(x))
        mean, logvar = jnp.split(self.to_stats(self.norm(x.reshape(-1))), 2)
        return mean, jnp.clip(logvar, -6.0, 3.0)


class ClickVAE(eqx.Module):
    encoder: Encoder
    decoder: eqx.nn.MLP

    def __init__(self, cfg, key):
        ke, kd = jr.split(key)
        self.encoder = Encoder(cfg.latent, cfg.samples, ke)
        self.decoder = eqx.nn.MLP(cfg.latent, cfg.samples, 64, 2, activation=jax.nn.gelu, key=kd)

    def __call__(self, x, key=None):
        mean, logvar = self.encoder(x)
        z = mean if key is None else mean + jnp.exp(0.5 * logvar) * jr.normal(key, mean.shape)
        return self.decoder(z)[None], mean, logvar


def elbo_loss(model, clicks, beta, key):
    keys = jr.split(key, clicks.shape[0])
    recon, mean, logvar = jax.vmap(model)(clicks, keys)
    rec = jnp.sum((recon - clicks) ** 2, axis=(1, 2)).mean()
    kl = 0.5 * jnp.sum(jnp.exp(logvar) + mean**2 - 1 - logvar, axis=1).mean()
    return rec + beta * kl, (rec, kl)


@eqx.filter_jit
def update(model, opt_state, optim, clicks, beta, key):
    (_, parts), grads = eqx.filter_value_and_grad(elbo_loss, has_aux=True)(model, clicks, beta, key)
    updates, opt_state = optim.update(grads, opt_state, eqx.filter(model, eqx.is_array))
    return eqx.apply_updates(model, updates), opt_state, parts


def reconstruction_snr(model, clicks):
    ratios = []
    for click in clicks:
        recon, _, _ = model(click)
        noise = jnp.sum((recon - click) ** 2)
        ratios.append(10 * jnp.log10(jnp.sum(click**2) / noise))
    return float(jnp.mean(jnp.stack(ratios)))


@eqx.filter_jit
def latent_codes(model, clicks):
    return jax.vmap(lambda c: model(c)[1])(clicks)


def group_codas(codes, k, rng, rounds=15):
    centres = codes[rng.choice(len(codes), k, replace=False)]
    for _ in range(rounds):
        assign = ((codes[:, None] - centres[None]) ** 2).sum(-1).argmin(1)
        for j in range(k):
            if (assign == j).any():
                centres[j] = codes[assign == j].mean(0)
    return np.bincount(assign, minlength=k)


def main():
    cfg = Config()
    rng = np.random.default_rng(cfg.seed)
    train = synth_clicks(cfg.n_train, cfg.samples, rng)
    val = jnp.asarray(synth_clicks(cfg.n_val, cfg.samples, rng))
    model = ClickVAE(cfg, jr.key(cfg.seed))
    optim = optax.adam(cfg.lr)
    opt_state = optim.init(eqx.filter(model, eqx.is_array))
    keys = iter(jr.split(jr.key(cfg.seed + 1), cfg.epochs * (cfg.n_train // cfg.batch)))

    for epoch in range(cfg.epochs):
        beta = min(1.0, (epoch + 1) / cfg.anneal_epochs) * 0.05
        order = rng.permutation(cfg.n_train)
        for i in range(0, cfg.n_train - cfg.batch + 1, cfg.batch):
            clicks = train[order[i:i + cfg.batch]]
            model, opt_state, (rec, kl) = update(model, opt_state, optim, clicks, beta, next(keys))
        snr = reconstruction_snr(model, val)
        print(f"epoch {epoch:2d}  beta {beta:.3f}  rec {float(rec):7.3f}  kl {float(kl):7.3f}  val SNR {snr:5.2f} dB")

    codes = np.array(latent_codes(model, val))
    print("coda groups:", group_codas(codes, 5, rng))


if __name__ == "__main__":
    main()
