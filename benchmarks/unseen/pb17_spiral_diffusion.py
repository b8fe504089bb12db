"""Denoising diffusion on two-dimensional densities, with an average of the weights and DDIM sampling."""
import time
from dataclasses import dataclass

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax


@dataclass
class Options:
    steps: int = 160
    batch: int = 128
    levels: int = 100
    lr: float = 1e-3
    decay: float = 0.995
    log: int = 80


def spiral(rng, n):
    t = np.sqrt(rng.random(n)) * 3 * np.pi
    r = t / 10
    pts = np.stack([r * np.cos(t), r * np.sin(t)], 1) + 0.02 * rng.normal(size=(n, 2))
    return pts.astype(np.float32)


class Noise:
    def __init__(self, levels):
        s = np.linspace(0, 1, levels + 1)
        bar = np.cos((s + 0.008) / 1.008 * np.pi / 2) ** 2
        self.bar = jnp.asarray(np.clip(bar[1:] / bar[0], 1e-4, 1.0), jnp.float32)

    def mix(self, x, eps, t):
        a = self.bar[t][:, None]
        return jnp.sqrt(a) * x + jnp.sqrt(1 - a) * eps


class Film(nn.Module):
    width: int

    @nn.compact
    def __call__(self, h, cond):
        scale, shift = jnp.split(nn.Dense(2 * self.width)(cond), 2, -1)
        r = nn.LayerNorm()(h) * (1 + scale) + shift
        return h + nn.Dense(self.width)(nn.silu(nn.Dense(self.width)(r)))


class Denoiser(nn.Module):
    width: int = 48
    depth: int = 3

    @nn.compact
    def __call__(self, x, t):
        freq = jnp.exp(jnp.linspace(0, 5, 16))
        angle = t[:, None] / 100 * freq
        cond = nn.silu(nn.Dense(self.width)(jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], -1)))
        h = nn.Dense(self.width)(x)
        for _ in range(self.depth):
            h = Film(self.width)(h, cond)
        return nn.Dense(2)(h)


class Average:
    """Exponential moving average of a tree of weights."""

    def __init__(self, params, decay):
        self.value, self.decay = params, decay

    def update(self, params):
        self.value = jax.tree.map(lambda a, p: a * self.decay + p * (1 - self.decay), self.value, params)


class Diffusion:
    def __init__(self, opt):
        self.opt = opt
        self.net, self.noise = Denoiser(), Noise(opt.levels)
        self.params = self.net.init(jax.random.key(0), jnp.zeros((1, 2)), jnp.zeros(1))
        self.tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(opt.lr))
        self.tx_state = self.tx.init(self.params)
        self.average = Average(self.params, opt.decay)
        self.value_and_grad = jax.jit(jax.value_and_grad(self.loss))
        self.sample = jax.jit(self._sample, static_argnames=("n", "stride"))

    def loss(self, params, x, key):
        kt, ke = jax.random.split(key)
        t = jax.random.randint(kt, (len(x),), 0, self.opt.levels)
        eps = jax.random.normal(ke, x.shape)
        return jnp.mean((self.net.apply(params, self.noise.mix(x, eps, t), t) - eps) ** 2)

    def train_step(self, x, key):
        loss, grads = self.value_and_grad(self.params, x, key)
        updates, self.tx_state = self.tx.update(grads, self.tx_state, self.params)
        self.params = optax.apply_updates(self.params, updates)
        self.average.update(self.params)
        return loss

    def _sample(self, params, key, n, stride):
        levels = jnp.arange(self.opt.levels - 1, 0, -stride)

        def denoise(x, t):
            eps = self.net.apply(params, x, jnp.full(n, t))
            a, b = self.noise.bar[t], self.noise.bar[jnp.maximum(t - stride, 0)]
            x0 = jnp.clip((x - jnp.sqrt(1 - a) * eps) / jnp.sqrt(a), -1.5, 1.5)
            return jnp.sqrt(b) * x0 + jnp.sqrt(1 - b) * eps, None

        return jax.lax.scan(denoise, jax.random.normal(key, (n, 2)), levels)[0]


def energy_distance(a, b):
    dist = lambda p, q: np.linalg.norm(p[:, None] - q[None], axis=-1).mean()
    return 2 * dist(a, b) - dist(a, a) - dist(b, b)


def main():
    opt = Options()
    rng = np.random.default_rng(0)
    data, held = spiral(rng, 5000), spiral(rng, 400)
    model = Diffusion(opt)
    keys = jax.random.split(jax.random.key(1), opt.steps)
    began, losses = time.time(), []
    for step in range(1, opt.steps + 1):
        batch = data[rng.integers(0, len(data), opt.batch)]
        losses.append(model.train_step(batch, keys[step - 1]))
        if step % opt.log == 0:
            drawn = np.asarray(model.sample(model.average.value, jax.random.key(step), 400, 4))
            print(f"{step} loss {np.mean(jax.device_get(losses[-opt.log:])):.4f} "
                  f"distance {energy_distance(drawn, held):.4f} {time.time() - began:.1f}s", flush=True)


if __name__ == "__main__":
    main()
