# Class-conditional diffusion of 12x12 glyphs (lines, boxes, crosses, rings) with flax.linen; sample quality by a template score.
import functools
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state

SIDE, KINDS, T = 12, 4, 24
EPOCHS, BATCH, STEPS = 7, 128, 50


def draw(kind, rng):
    img = np.full((SIDE, SIDE), -1.0, np.float32)
    r, c, s = rng.integers(1, 4), rng.integers(1, 4), rng.integers(5, 8)
    if kind == 0:
        img[r:r + 2, c:c + s] = 1
    elif kind == 1:
        img[r:r + s, c:c + s] = 1
        img[r + 1:r + s - 1, c + 1:c + s - 1] = -1
    elif kind == 2:
        i = np.arange(s)
        img[r + i, c + i] = 1
        img[r + i, c + s - 1 - i] = 1
    else:
        yy, xx = np.mgrid[:SIDE, :SIDE]
        img[np.abs(np.hypot(yy - r - s / 2, xx - c - s / 2) - s / 2) < 0.7] = 1
    return img.ravel()


class Denoiser(nn.Module):
    width: int = 256

    @nn.compact
    def __call__(self, x, t, kind):
        freq = jnp.exp(jnp.linspace(0.0, 4.0, 16))
        angle = t[:, None] / T * freq
        cond = nn.Dense(self.width)(jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], -1))
        cond = nn.silu(cond + nn.Embed(KINDS, self.width)(kind))
        h = nn.Dense(self.width)(x)
        for _ in range(3):
            scale, shift = jnp.split(nn.Dense(2 * self.width)(cond), 2, -1)
            z = nn.LayerNorm()(h) * (1 + scale) + shift
            h = h + nn.Dense(self.width)(nn.gelu(nn.Dense(self.width)(z)))
        return nn.Dense(SIDE * SIDE)(nn.LayerNorm()(h))


class State(train_state.TrainState):
    ema: dict


net = Denoiser()
betas = np.linspace(1e-3, 0.25, T).astype(np.float32)
alpha_bar = jnp.asarray(np.cumprod(1 - betas))


@functools.partial(jax.jit, donate_argnums=0)
def train_step(state, images, kinds, key):
    kt, kn = jax.random.split(key)
    t = jax.random.randint(kt, (images.shape[0],), 0, T)
    noise = jax.random.normal(kn, images.shape)
    a = alpha_bar[t][:, None]
    noisy = jnp.sqrt(a) * images + jnp.sqrt(1 - a) * noise

    def loss_fn(params):
        return jnp.mean((net.apply({"params": params}, noisy, t, kinds) - noise) ** 2)

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    state = state.apply_gradients(grads=grads)
    ema = jax.tree.map(lambda e, p: 0.98 * e + 0.02 * p, state.ema, state.params)
    return state.replace(ema=ema), loss


@functools.partial(jax.jit, static_argnames="n")
def sample(params, key, n):
    """Ancestral sampling, from pure noise to glyphs."""
    kinds = jnp.arange(n) % KINDS
    x = jax.random.normal(key, (n, SIDE * SIDE))
    for t in reversed(range(T)):
        eps = net.apply({"params": params}, x, jnp.full((n,), t), kinds)
        x = (x - betas[t] / jnp.sqrt(1 - alpha_bar[t]) * eps) / np.sqrt(1 - betas[t])
        if t > 0:
            key, sub = jax.random.split(key)
            x = x + np.sqrt(betas[t]) * jax.random.normal(sub, x.shape)
    return x, kinds


def template_score(x, kinds, bank, bank_kinds):
    """Share of samples whose nearest training glyph (by cosine) is of the wanted kind."""
    x, kinds = np.asarray(x), np.asarray(kinds)
    sims = (x / np.linalg.norm(x, axis=1, keepdims=True)) @ bank.T
    best = sims.argmax(1)
    return (bank_kinds[best] == kinds).mean(), sims.max(1).mean() / np.linalg.norm(bank[0])


def gflops(state, batch):
    """Cost of one training step as the compiler sees it."""
    cost = train_step.lower(state, *batch).compile().cost_analysis()
    return cost["flops"] / 1e9


if __name__ == "__main__":
    rng, key = np.random.default_rng(3), jax.random.key(3)
    kinds = rng.integers(0, KINDS, 3000).astype(np.int32)
    images = np.stack([draw(k, rng) for k in kinds])
    key, sub = jax.random.split(key)
    params = net.init(sub, images[:1], np.zeros(1), kinds[:1])["params"]
    state = State.create(apply_fn=net.apply, params=params, tx=optax.adam(1e-3), ema=jax.tree.map(jnp.copy, params))
    for epoch in range(EPOCHS):
        start, losses = time.time(), []
        for _ in range(STEPS):
            idx = rng.integers(0, len(images), BATCH)
            key, sub = jax.random.split(key)
            batch = (images[idx], kinds[idx], sub)
            state, loss = train_step(state, *batch)
            losses.append(loss)
        mean = np.mean(jax.device_get(losses))
        seconds = time.time() - start
        rate = gflops(state, batch) * STEPS / seconds
        print(f"epoch {epoch}  loss {mean:.4f}  {seconds:.2f} s  {rate:.2f} GFLOP/s")
        if epoch % 4 == 0:
            right, close = template_score(*sample(state.ema, jax.random.key(0), 64), images, kinds)
            print(f"   64 previews: right kind {right:.2f}, similarity {close:.2f}")
    right, close = template_score(*sample(state.ema, jax.random.key(1), 400), images, kinds)
    print(f"final 400 samples: right kind {right:.3f}, similarity {close:.3f}")
