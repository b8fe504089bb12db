"""Predicts log drainage area at points of an elevation raster from multi-scale patches."""
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

RASTER = (1200, 1600)
PATCH = 16
SCALES = (1, 3)


def make_terrain(seed=0):
    rng = np.random.default_rng(seed)
    ny, nx = RASTER
    ky = np.fft.fftfreq(ny)[:, None]
    kx = np.fft.rfftfreq(nx)[None, :]
    amp = 1.0 / np.maximum(np.hypot(ky, kx), 1.0 / nx) ** 2.1
    spectrum = amp * np.exp(2j * np.pi * rng.random(amp.shape))
    z = np.fft.irfft2(spectrum, s=RASTER)
    z = (z - z.mean()) / z.std()
    smooth = np.fft.irfft2(np.fft.rfft2(z) * np.exp(-((np.hypot(ky, kx) / 0.02) ** 2)), s=RASTER)
    drain = np.log1p(np.exp(4.0 * (smooth - z) + 1.5 * -smooth))
    return z, drain.astype(np.float32)


def gather_patches(raster, rows, cols):
    offsets = jnp.arange(PATCH) - PATCH // 2
    views = []
    for scale in SCALES:
        r = rows[:, None, None] + scale * offsets[None, :, None]
        c = cols[:, None, None] + scale * offsets[None, None, :]
        patch = raster[r, c]
        views.append(patch - patch.mean(axis=(1, 2), keepdims=True))
    return jnp.stack(views, axis=-1)


def init_params(key, widths=(24, 32)):
    params, c_in = [], len(SCALES)
    for width in widths:
        key, sub = jax.random.split(key)
        params.append(
            {"w": jax.random.normal(sub, (3, 3, c_in, width)) * np.sqrt(2 / (9 * c_in)), "b": jnp.zeros(width)}
        )
        c_in = width
    key, sub = jax.random.split(key)
    params.append({"w": jax.random.normal(sub, (c_in, 1)) * 0.1, "b": jnp.zeros(1)})
    return params


def forward(params, patches):
    x = patches
    for layer in params[:-1]:
        x = jax.lax.conv_general_dilated(
            x, layer["w"], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + layer["b"])
    return (x.mean(axis=(1, 2)) @ params[-1]["w"] + params[-1]["b"])[:, 0]


optimizer = optax.adamw(2e-3, weight_decay=1e-4)


def loss_fn(params, patches, target):
    return jnp.mean((forward(params, patches) - target) ** 2)


@functools.partial(jax.jit, donate_argnums=(0, 1))
def train_step(params, opt_state, raster, rows, cols, flips, target):
    patches = gather_patches(raster, rows, cols)
    patches = jnp.where(flips[:, None, None, None], patches[:, :, ::-1], patches)
    loss, grads = jax.value_and_grad(loss_fn)(params, patches, target)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


@jax.jit
def predict(params, raster, rows, cols):
    return forward(params, gather_patches(raster, rows, cols))


class PointSampler:
    """Draws points away from the border, with more of them near the channels."""

    def __init__(self, drain, size, seed):
        self.drain = drain
        self.size = size
        self.rng = np.random.default_rng(seed)
        self.margin = PATCH // 2 * max(SCALES) + 1
        self.limit = float(np.quantile(drain, 0.8))

    def draw(self):
        ny, nx = self.drain.shape
        n = 4 * self.size
        r = self.rng.integers(self.margin, ny - self.margin, n)
        c = self.rng.integers(self.margin, nx - self.margin, n)
        o = np.arange(-2, 3)
        value = np.median(self.drain[r[:, None, None] + o[:, None], c[:, None, None] + o].reshape(n, -1), axis=1)
        keep = np.flatnonzero((value >= self.limit) | (self.rng.random(n) <= 0.35))[: self.size]
        flips = self.rng.random(self.size) < 0.5
        return r[keep].astype(np.int32), c[keep].astype(np.int32), flips, value[keep].astype(np.float32)


def validate(params, raster, points):
    rows, cols, _, target = points
    pred = np.asarray(predict(params, raster, rows, cols))
    residual = pred - target
    return float(np.sqrt(np.mean(residual**2))), float(np.corrcoef(pred, target)[0, 1])


def main():
    terrain, drain = make_terrain()
    raster = jax.device_put(terrain.astype(np.float32))
    sampler = PointSampler(drain, size=96, seed=1)
    held_out = PointSampler(drain, size=512, seed=2).draw()
    params = jax.jit(init_params)(jax.random.key(0))
    opt_state = jax.jit(optimizer.init)(params)

    start = time.perf_counter()
    for epoch in range(8):
        losses = []
        for _ in range(50):
            rows, cols, flips, target = sampler.draw()
            params, opt_state, loss = train_step(params, opt_state, raster, rows, cols, flips, target)
            losses.append(loss)
        rmse, corr = validate(params, raster, held_out)
        print(
            f"epoch {epoch} train mse {float(jnp.stack(losses).mean()):.4f} "
            f"val rmse {rmse:.4f} corr {corr:.3f} {time.perf_counter() - start:.1f}s"
        )


if __name__ == "__main__":
    main()
