"""Masked autoregressive flow for synthetic emission-line spectra (equinox + optax).

The density model is used afterwards to draw mock spectra and to find outliers.
"""
import time
from typing import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

N_PIX = 40
N_TRAIN = 4096
BATCH = 256


def mock_spectra(n, seed=0):
    rng = np.random.default_rng(seed)
    pix = np.arange(N_PIX)
    centre = rng.uniform(12, 28, (n, 1))
    width = rng.uniform(1.5, 3.0, (n, 1))
    ratio = rng.uniform(0.2, 0.8, (n, 1))
    line = np.exp(-(((pix - centre) / width) ** 2)) + ratio * np.exp(-(((pix - centre - 6) / width) ** 2))
    slope = rng.normal(0, 0.3, (n, 1)) * (pix - N_PIX / 2) / N_PIX
    return (line + slope + 0.05 * rng.normal(size=(n, N_PIX))).astype(np.float32)


def made_masks(dim, hidden, depth):
    deg_in = np.arange(dim)
    deg_h = np.arange(hidden) % (dim - 1)
    first = (deg_h[:, None] >= deg_in[None]).astype(np.float32)
    inner = (deg_h[:, None] >= deg_h[None]).astype(np.float32)
    last = (deg_in[:, None] > deg_h[None]).astype(np.float32)
    return [first] + [inner] * (depth - 1) + [np.concatenate([last, last])]


class MaskedLinear(eqx.Module):
    weight: jax.Array
    bias: jax.Array
    mask: np.ndarray

    def __init__(self, mask, key, scale=1.0):
        out, inp = mask.shape
        self.weight = scale * jr.normal(key, (out, inp)) / np.sqrt(inp)
        self.bias = jnp.zeros(out)
        self.mask = mask

    def __call__(self, x):
        return (self.weight * jax.lax.stop_gradient(self.mask)) @ x + self.bias


class MADE(eqx.Module):
    layers: list
    act: Callable = eqx.field(static=True)

    def __init__(self, dim, hidden, depth, key):
        masks = made_masks(dim, hidden, depth)
        keys = jr.split(key, len(masks))
        scales = [1.0] * (len(masks) - 1) + [0.05]
        self.layers = [MaskedLinear(m, k, s) for m, k, s in zip(masks, keys, scales)]
        self.act = jax.nn.silu

    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = self.act(layer(x))
        shift, log_scale = jnp.split(self.layers[-1](x), 2)
        return shift, 2.0 * jnp.tanh(log_scale / 2.0)


class AutoregressiveFlow(eqx.Module):
    blocks: list

    def __init__(self, dim, n_blocks, hidden, key):
        self.blocks = [MADE(dim, hidden, 2, k) for k in jr.split(key, n_blocks)]

    def log_prob(self, x):
        logdet = 0.0
        for block in self.blocks:
            shift, log_scale = block(x)
            x = ((x - shift) * jnp.exp(-log_scale))[::-1]
            logdet = logdet - log_scale.sum()
        return logdet - 0.5 * jnp.sum(x**2) - 0.5 * x.size * jnp.log(2 * jnp.pi)

    def sample(self, key):
        z = jr.normal(key, (N_PIX,))
        for block in reversed(self.blocks):
            z, x = z[::-1], jnp.zeros(N_PIX)
            for i in range(N_PIX):
                shift, log_scale = block(x)
                x = x.at[i].set(z[i] * jnp.exp(log_scale[i]) + shift[i])
            z = x
        return z


def nll(flow, batch):
    return -jnp.mean(jax.vmap(flow.log_prob)(batch))


@eqx.filter_jit
def fit_epoch(flow, opt_state, optim, batches):
    params, static = eqx.partition(flow, eqx.is_inexact_array)

    def step(carry, batch):
        params, opt_state = carry
        loss, grads = jax.value_and_grad(lambda p: nll(eqx.combine(p, static), batch))(params)
        updates, opt_state = optim.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), loss

    (params, opt_state), losses = jax.lax.scan(step, (params, opt_state), batches)
    return eqx.combine(params, static), opt_state, losses.mean()


@eqx.filter_jit
def draw(flow, keys):
    return jax.vmap(flow.sample)(keys)


@eqx.filter_jit
def log_density(flow, x):
    return jax.vmap(flow.log_prob)(x)


def line_statistics(spectra):
    peak = spectra.max(1)
    return {"peak": peak.mean(), "peak_std": peak.std(), "position": spectra.argmax(1).mean()}


def main(epochs=35):
    data = mock_spectra(N_TRAIN)
    mean, std = data.mean(0), data.std(0)
    scaled = jnp.asarray((data - mean) / std)
    flow = AutoregressiveFlow(N_PIX, n_blocks=8, hidden=96, key=jr.key(0))
    optim = optax.chain(optax.clip_by_global_norm(5.0), optax.adam(1e-3))
    opt_state = optim.init(eqx.filter(flow, eqx.is_inexact_array))
    rng = np.random.default_rng(1)
    begin = time.time()
    for epoch in range(epochs):
        batches = scaled[rng.permutation(N_TRAIN)].reshape(-1, BATCH, N_PIX)
        flow, opt_state, loss = fit_epoch(flow, opt_state, optim, batches)
        if epoch % 5 == 4:
            print(f"epoch {epoch + 1}  nll {float(loss):.3f}  {time.time() - begin:.1f}s")
    mocks = np.asarray(draw(flow, jr.split(jr.key(7), 256))) * std + mean
    print("data ", line_statistics(data))
    print("mocks", line_statistics(mocks))
    fresh = (mock_spectra(512, seed=9) - mean) / std
    scores = log_density(flow, jnp.asarray(fresh))
    print("median held-out log prob", float(jnp.median(scores)))


if __name__ == "__main__":
    main()
