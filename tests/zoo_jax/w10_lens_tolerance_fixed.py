"""Monte Carlo tolerancing of a small camera lens by paraxial/real ray tracing."""
import functools
import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from scipy.interpolate import CubicSpline

WAVELENGTHS_NM = np.array([435.8, 486.1, 546.1, 587.6, 656.3, 706.5])
CATALOG = {
    "crown": np.array([1.5267, 1.5224, 1.5187, 1.5168, 1.5143, 1.5129]),
    "flint": np.array([1.6472, 1.6321, 1.6241, 1.6200, 1.6150, 1.6120]),
}
SPLINES = {name: CubicSpline(WAVELENGTHS_NM, n).c.astype(np.float32) for name, n in CATALOG.items()}
KNOTS = WAVELENGTHS_NM.astype(np.float32)


@dataclass
class Design:
    name: str
    curvatures: tuple
    gaps: tuple
    glasses: tuple


DESIGNS = [
    Design("doublet-a", (0.0165, -0.0223, -0.0069), (6.0, 2.5, 96.0), ("crown", "flint", None)),
    Design("doublet-b", (0.0172, -0.0200, -0.0075), (5.0, 2.0, 95.0), ("crown", "flint", None)),
    Design("reversed", (0.0120, 0.0225, -0.0130), (2.5, 6.0, 97.0), ("flint", "crown", None)),
    Design("air-split", (0.0155, -0.0180, -0.0060), (6.0, 3.0, 94.0), ("crown", "flint", None)),
]


def index_of(glass, wavelength):
    if glass is None:
        return jnp.ones_like(wavelength)
    coefficients = jnp.asarray(SPLINES[glass])
    knots = jnp.asarray(KNOTS)
    piece = jnp.clip(jnp.searchsorted(knots, wavelength, side="right") - 1, 0, len(KNOTS) - 2)
    d = wavelength - knots[piece]
    c3, c2, c1, c0 = coefficients[:, piece]
    return ((c3 * d + c2) * d + c1) * d + c0


def refract(direction, normal, ratio):
    cos_i = -jnp.sum(direction * normal, -1, keepdims=True)
    sin2 = ratio**2 * (1.0 - cos_i**2)
    cos_t = jnp.sqrt(jnp.maximum(1.0 - sin2, 1e-6))
    return ratio * direction + (ratio * cos_i - cos_t) * normal


def trace(design, errors, origin, direction, wavelength):
    """Rays of one wavelength each through the perturbed lens to the image plane."""
    n_before = jnp.ones_like(wavelength)
    position = origin
    for k, (curv, gap, glass) in enumerate(zip(design.curvatures, design.gaps, design.glasses)):
        c = curv * (1.0 + errors["curvature"][k])
        shift = jnp.array([0.0, 1.0, 0.0]) * errors["decenter"][k]
        p = position - shift
        b = direction[:, 2] - c * jnp.sum(p * direction, -1)
        a = c * jnp.sum(p * p, -1) - 2.0 * p[:, 2]
        dist = a / (b + jnp.sqrt(jnp.maximum(b * b - c * a, 1e-9)))
        p = p + dist[:, None] * direction
        normal = jnp.stack([c * p[:, 0], c * p[:, 1], c * p[:, 2] - 1.0], -1)
        n_after = index_of(glass, wavelength)
        direction = refract(direction, normal, (n_before / n_after)[:, None])
        n_before = n_after
        thickness = gap * (1.0 + errors["thickness"][k])
        position = p + shift - jnp.array([0.0, 0.0, 1.0]) * thickness
    travel = -position[:, 2] / direction[:, 2]
    return position + travel[:, None] * direction


def make_rays(field_degrees, per_side=5):
    g = np.linspace(-8.0, 8.0, per_side)
    x, y = [v.ravel() for v in np.meshgrid(g, g)]
    keep = np.hypot(x, y) <= 8.01
    x, y = np.tile(x[keep], 3), np.tile(y[keep], 3)
    w = np.repeat([486.1, 546.1, 656.3], keep.sum())
    angle = np.deg2rad(field_degrees)
    direction = np.tile([0.0, np.sin(angle), np.cos(angle)], (len(x), 1))
    origin = np.stack([x, y, -2.0 * np.ones_like(x)], -1)
    return tuple(jnp.asarray(v, jnp.float32) for v in (origin, direction, w))


def draw_errors(key, n):
    k1, k2, k3 = jax.random.split(key, 3)
    return {
        "curvature": 0.004 * jax.random.normal(k1, (n, 3)),
        "decenter": 0.02 * jax.random.normal(k2, (n, 3)),
        "thickness": 0.005 * jax.random.normal(k3, (n, 3)),
    }


@functools.partial(jax.jit, static_argnames=("glasses", "n_trials"))
def spot_sizes(curvatures, gaps, rays, key, glasses, n_trials):
    design = Design("traced", curvatures, gaps, glasses)

    def one(errors):
        hit = trace(design, errors, *rays)[:, :2]
        return jnp.sqrt(jnp.mean(jnp.sum((hit - hit.mean(0)) ** 2, -1)))

    return jax.lax.map(one, draw_errors(key, n_trials))


def tolerance_run(design, rays, key, n_trials, batches):
    curvatures, gaps = np.float32(design.curvatures), np.float32(design.gaps)
    sizes = [spot_sizes(curvatures, gaps, rays, k, design.glasses, n_trials) for k in jax.random.split(key, batches)]
    return np.concatenate([np.asarray(s) for s in sizes])


def main():
    began = time.perf_counter()
    key = jax.random.key(11)
    for design in DESIGNS:
        for field in (0.0, 2.0):
            key, sub = jax.random.split(key)
            sizes = tolerance_run(design, make_rays(field), sub, n_trials=2500, batches=4) * 1e3
            p50, p90, p98 = np.percentile(sizes, (50, 90, 98))
            print(
                f"{design.name:10s} field {field:.0f} deg  spot um: median {p50:7.2f}  90% {p90:7.2f}  "
                f"98% {p98:7.2f}  {time.perf_counter() - began:.1f}s"
            )


if __name__ == "__main__":
    main()
