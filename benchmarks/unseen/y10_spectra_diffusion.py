"""Denoising diffusion for synthetic infrared spectra: MLP noise predictor, EMA weights, ancestral sampling."""
import os
import tempfile
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

POINTS = 64
WIDTH = 256
T = 16
BATCH = 64
STEPS = 500
CHECKPOINT_EVERY = 50

betas = np.linspace(1e-3, 0.15, T).astype(np.float32)
alphas = 1.0 - betas
alpha_bar = np.cumprod(alphas)


def synth_spectra(n, rng):
    grid = np.linspace(0, 1, POINTS)
    spectra = np.zeros((n, POINTS), np.float32)
    lines = np.array([0.15, 0.35, 0.4, 0.62, 0.85])
    for i in range(n):
        present = rng.random(lines.size) < 0.6
        for centre in lines[present]:
            width = rng.uniform(0.015, 0.05)
            spectra[i] += rng.uniform(0.4, 1.0) * np.exp(-((grid - centre - rng.normal(0, 0.01)) / width) ** 2)
        spectra[i] += rng.uniform(-0.2, 0.2) * grid
    return spectra * 2 - 0.5


def dense_init(key, n_in, n_out, scale=1.0):
    return {"w": jax.random.normal(key, (n_in, n_out)) * scale * n_in**-0.5, "b": jnp.zeros(n_out)}


def init_params(key):
    k = jax.random.split(key, 5)
    return {
        "time": dense_init(k[0], 32, WIDTH),
        "in": dense_init(k[1], POINTS, WIDTH),
        "mid": [dense_init(k[2], WIDTH, WIDTH), dense_init(k[3], WIDTH, WIDTH)],
        "out": dense_init(k[4], WIDTH, POINTS, 0.1),
    }


def dense(p, x):
    return x @ p["w"] + p["b"]


def time_embedding(t):
    freq = jnp.exp(jnp.linspace(0.0, 5.0, 16))
    phase = (t / T)[..., None] * freq
    return jnp.concatenate([jnp.sin(phase), jnp.cos(phase)], -1)


def predict_noise(params, x, t):
    h = dense(params["in"], x) + dense(params["time"], time_embedding(t))
    for layer in params["mid"]:
        h = h + jax.nn.silu(dense(layer, jax.nn.silu(h)))
    return dense(params["out"], h)


def diffusion_loss(params, x0, key):
    kt, kn = jax.random.split(key)
    t = jax.random.randint(kt, (x0.shape[0],), 0, T)
    noise = jax.random.normal(kn, x0.shape)
    ab = jnp.asarray(alpha_bar)[t][:, None]
    noisy = jnp.sqrt(ab) * x0 + jnp.sqrt(1 - ab) * noise
    return jnp.mean((predict_noise(params, noisy, t) - noise) ** 2)


tx = optax.adamw(1e-3, weight_decay=1e-4)


@jax.jit
def train_step(params, opt_state, x0, key):
    loss, grads = jax.value_and_grad(diffusion_loss)(params, x0, key)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


def update_ema(ema, params, decay=0.995):
    return jax.tree.map(lambda e, p: decay * e + (1.0 - decay) * p, ema, params)


def save_checkpoint(path, step, params, ema, opt_state):
    leaves = jax.tree.leaves(jax.device_get((params, ema, opt_state)))
    np.savez_compressed(path, step=step, **{f"leaf{i}": leaf for i, leaf in enumerate(leaves)})


@partial(jax.jit, static_argnames="t")
def denoise(params, x, t, key):
    eps = predict_noise(params, x, jnp.full((x.shape[0],), t))
    mean = (x - betas[t] / np.sqrt(1 - alpha_bar[t]) * eps) / np.sqrt(alphas[t])
    if t == 0:
        return mean
    return mean + np.sqrt(betas[t]) * jax.random.normal(key, x.shape)


def sample(params, n, key):
    key, sub = jax.random.split(key)
    x = jax.random.normal(sub, (n, POINTS))
    for t in reversed(range(T)):
        key, sub = jax.random.split(key)
        x = denoise(params, x, t, sub)
    return x


def band_frequency(spectra):
    """How often each of the five absorption bands shows up."""
    centres = (np.array([0.15, 0.35, 0.4, 0.62, 0.85]) * (POINTS - 1)).astype(int)
    return (np.asarray(spectra)[:, centres] > 0.3).mean(0)


def main():
    rng = np.random.default_rng(13)
    data = synth_spectra(4000, rng)
    params = init_params(jax.random.key(0))
    ema = jax.tree.map(jnp.copy, params)
    opt_state = tx.init(params)
    keys = jax.random.split(jax.random.key(1), STEPS)
    workdir = tempfile.mkdtemp(prefix="spectra_")
    window = []

    for step in range(STEPS):
        x0 = data[rng.integers(len(data), size=BATCH)]
        params, opt_state, loss = train_step(params, opt_state, x0, keys[step])
        ema = update_ema(ema, params)
        window.append(loss)
        if (step + 1) % CHECKPOINT_EVERY == 0:
            save_checkpoint(os.path.join(workdir, "last.npz"), step + 1, params, ema, opt_state)
            print(f"step {step + 1:4d}  loss {np.mean(jax.device_get(window)):.4f}")
            window.clear()

    fake = sample(ema, 256, jax.random.key(2))
    np.set_printoptions(precision=2)
    print("bands in data   ", band_frequency(data))
    print("bands in samples", band_frequency(fake))


if __name__ == "__main__":
    main()
