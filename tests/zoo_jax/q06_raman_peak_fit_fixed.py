"""Fits a sum of Lorentzian peaks on a sloping background to a map of Raman spectra with
Levenberg-Marquardt, then estimates the error of the peak positions by residual bootstrap."""
import csv
import io
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

N_PEAKS = 3
AXIS = np.linspace(-1.0, 1.0, 220).astype(np.float32)


class Fit(NamedTuple):
    params: np.ndarray
    cost: float
    iterations: int


def spectrum(p, axis):
    centre, logwidth, amp = p[:N_PEAKS], p[N_PEAKS:2 * N_PEAKS], p[2 * N_PEAKS:3 * N_PEAKS]
    width = jnp.exp(logwidth)
    peaks = amp * width**2 / ((axis[:, None] - centre) ** 2 + width**2)
    return peaks.sum(-1) + p[-2] + p[-1] * axis


def measured_map(rng, rows=4, cols=6):
    """One spectrum per pixel; strain moves the peaks smoothly over the map."""
    pixels = {}
    for r in range(rows):
        for c in range(cols):
            shift = 0.05 * np.sin(r / 3) + 0.03 * np.cos(c / 2)
            true = np.array([-0.5 + shift, 0.05 + shift, 0.55 - shift, -2.6, -2.2, -2.9,
                             1.0, 1.6, 0.8, 0.3, 0.1], np.float32)
            y = np.asarray(spectrum(true, AXIS)) + 0.03 * rng.standard_normal(len(AXIS))
            pixels[r, c] = y.astype(np.float32)
    return pixels


GUESS = np.array([-0.48, 0.04, 0.52, -2.4, -2.4, -2.4, 0.8, 1.2, 0.8, 0.2, 0.0], np.float32)


def residual_of(p, axis, y):
    return spectrum(p, axis) - y


@jax.jit
def cost_of(p, axis, y):
    return jnp.sum(residual_of(p, axis, y) ** 2)


@jax.jit
def trial(p, damping, axis, y):
    r = residual_of(p, axis, y)
    j = jax.jacfwd(residual_of)(p, axis, y)
    a = j.T @ j
    step = jnp.linalg.solve(a + damping * jnp.diag(jnp.diag(a)) + 1e-9 * jnp.eye(len(p)), -(j.T @ r))
    new = p + step
    return new, cost_of(new, axis, y)


class PixelFitter:
    """Levenberg-Marquardt for one pixel."""

    def __init__(self, axis, y):
        self.axis, self.y = jnp.asarray(axis), jnp.asarray(y)

    def fit(self, guess, max_iter=60, tol=1e-6):
        p, damping = jnp.asarray(guess), 1e-2
        cost = float(cost_of(p, self.axis, self.y))
        for it in range(max_iter):
            new, new_cost = trial(p, damping, self.axis, self.y)
            if (new_cost := float(new_cost)) < cost:
                done = cost - new_cost < tol * cost
                p, cost, damping = new, new_cost, max(damping / 5, 1e-7)
                if done:
                    break
            else:
                damping *= 4
                if damping > 1e6:
                    break
        return Fit(np.asarray(p), cost, it + 1)


@jax.jit
def refine(p, y):
    """A few Gauss-Newton rounds from a good start."""
    for _ in range(3):
        r = spectrum(p, AXIS) - y
        j = jax.jacfwd(lambda q: spectrum(q, AXIS))(p)
        delta, *_ = jnp.linalg.lstsq(j, -r)
        p = p + delta
    return p


def bootstrap(rng, fit, y, replicas=25):
    clean = np.asarray(spectrum(fit.params, AXIS))
    resid = y - clean
    centres = []
    for _ in range(replicas):
        fake = clean + rng.choice(resid, len(resid))
        centres.append(refine(fit.params, fake.astype(np.float32)))
    return np.stack(jax.device_get(centres))[:, :N_PEAKS].std(0)


def report(fits, errors):
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["row", "col", "cost", *[f"x{i}" for i in range(N_PEAKS)]])
    for (r, c), f in fits.items():
        writer.writerow([r, c, f"{f.cost:.4f}", *[f"{v:.4f}" for v in f.params[:N_PEAKS]]])
    for (r, c), e in errors.items():
        writer.writerow([r, c, "sigma", *[f"{v:.5f}" for v in e]])
    return out.getvalue()


def main():
    rng = np.random.default_rng(12)
    pixels = measured_map(rng)
    start = time.perf_counter()
    fits = {}
    for where, y in pixels.items():
        fits[where] = PixelFitter(AXIS, y).fit(GUESS)
    print(f"{len(fits)} fits in {time.perf_counter() - start:.1f} s, "
          f"{np.mean([f.iterations for f in fits.values()]):.1f} iterations each")
    start = time.perf_counter()
    corners = [(0, 0), (0, 5), (3, 0), (3, 5)]
    errors = {w: bootstrap(rng, fits[w], pixels[w]) for w in corners}
    print(f"bootstrap of {len(corners)} pixels in {time.perf_counter() - start:.1f} s")
    print(report(fits, errors))


if __name__ == "__main__":
    main()
