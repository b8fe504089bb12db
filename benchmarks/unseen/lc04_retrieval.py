"""Coherent diffraction imaging: phase retrieval by shrink-wrap, HIO and error reduction.

A complex-valued cell-like object is measured by its far-field intensities (with shot noise behind a
beam stop).  The reconstruction starts on the central part of the detector, which gives a coarse image
and a support, and continues on the full detector from the enlarged coarse image.  Several random
starts run side by side; the best one is compared with the truth.
"""
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

FULL, COARSE = 192, 96
STARTS = 4
BETA = 0.85
BLOCK = 40
ROUNDS = 80


def specimen(n, seed):
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:n, :n] / n - 0.5
    body = ((x / 0.20) ** 2 + (y / 0.15) ** 2 < 1).astype(float)
    for _ in range(14):
        cx, cy = rng.uniform(-0.12, 0.12, 2)
        r = rng.uniform(0.01, 0.04)
        body += rng.uniform(0.2, 0.8) * np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / r ** 2) * (body > 0)
    return body * np.exp(0.3j * body)


def measure(obj, photons, seed):
    far = np.abs(np.fft.fftshift(np.fft.fft2(obj))) ** 2
    far *= photons / far.sum()
    counts = np.random.default_rng(seed).poisson(far).astype(np.float32)
    n = len(obj)
    y, x = np.mgrid[:n, :n] - n // 2
    known = (np.hypot(x, y) > 2.0)
    return np.sqrt(counts), known


def central(a, n):
    lo = (a.shape[0] - n) // 2
    return np.fft.ifftshift(a[lo:lo + n, lo:lo + n])


def impose_modulus(g, amplitude, known):
    spectrum = jnp.fft.fft2(g)
    fixed = amplitude * spectrum / jnp.maximum(jnp.abs(spectrum), 1e-9)
    return jnp.fft.ifft2(jnp.where(known, fixed, spectrum))


def residual(g, amplitude, known):
    gap = jnp.abs(jnp.fft.fft2(g)) - amplitude
    return jnp.sum(known * gap ** 2) / jnp.sum(known * amplitude ** 2)


@partial(jax.jit, static_argnames="rule", donate_argnames="g")
def iterate(g, support, amplitude, known, rule):
    """BLOCK iterations of one rule on all starts at once."""
    def one(g, support):
        def body(g, _):
            p = impose_modulus(g, amplitude, known)
            if rule == "hio":
                g = jnp.where(support, p, g - BETA * p)
            else:
                g = jnp.where(support, p, 0.0)
            return g, None
        g, _ = jax.lax.scan(body, g, None, length=BLOCK)
        return g, residual(g, amplitude, known)
    return jax.vmap(one)(g, support)


@jax.jit
def shrink_wrap(g, sigma, level):
    n = g.shape[-1]
    k = jnp.fft.fftfreq(n)
    kernel = jnp.exp(-2 * (jnp.pi * sigma) ** 2 * (k[:, None] ** 2 + k[None] ** 2))
    smooth = jnp.real(jnp.fft.ifft2(jnp.fft.fft2(jnp.abs(g)) * kernel))
    return smooth > level * smooth.max(axis=(-2, -1), keepdims=True)


@partial(jax.jit, static_argnames="n")
def enlarge(g, n):
    pad = (n - g.shape[-1]) // 2
    spectrum = jnp.fft.fftshift(jnp.fft.fft2(g), axes=(-2, -1))
    spectrum = jnp.pad(spectrum, ((0, 0), (pad, pad), (pad, pad)))
    return jnp.fft.ifft2(jnp.fft.ifftshift(spectrum, axes=(-2, -1)))


class Reconstruction:
    def __init__(self, amplitude, known, n):
        self.n = n
        self.amplitude = jnp.asarray(central(amplitude, n))
        self.known = jnp.asarray(central(known, n))
        self.history = []

    def run(self, g, support, rounds, sigma):
        for r in range(rounds):
            for rule in ("hio", "hio", "er"):
                g, res = iterate(g, support, self.amplitude, self.known, rule=rule)
            support = shrink_wrap(g, max(1.0, sigma * 0.97 ** r), 0.12)
            self.history.append(res)
        print(f"{self.n} pixels: residuals {np.round(np.asarray(res), 4)}")
        return g, support


def align(image, truth):
    """Best overlap over shifts and the twin image."""
    best = 0.0
    for cand in (image, np.conj(image[::-1, ::-1])):
        corr = np.fft.ifft2(np.fft.fft2(cand) * np.conj(np.fft.fft2(truth)))
        best = max(best, np.abs(corr).max() / np.linalg.norm(cand) / np.linalg.norm(truth))
    return best


def main():
    truth = specimen(FULL, seed=5)
    amplitude, known = measure(truth, photons=3e7, seed=6)
    started = time.time()

    coarse = Reconstruction(amplitude, known, COARSE)
    phase = jax.random.uniform(jax.random.key(1), (STARTS, COARSE, COARSE)) * 2 * jnp.pi
    g = jnp.fft.ifft2(coarse.amplitude * jnp.exp(1j * phase))
    autocorr = jnp.fft.fftshift(jnp.abs(jnp.fft.ifft2(coarse.amplitude ** 2)))
    support = jnp.broadcast_to(autocorr > 0.05 * autocorr.max(), g.shape)
    g, support = coarse.run(g, support, rounds=ROUNDS, sigma=3.0)

    fine = Reconstruction(amplitude, known, FULL)
    g = enlarge(g, FULL)
    g, support = fine.run(g, shrink_wrap(g, 3.0, 0.12), rounds=ROUNDS, sigma=3.0)

    best = int(jnp.argmin(fine.history[-1]))
    curve = np.asarray(jnp.stack(coarse.history + fine.history))[:, best]
    print("residual by round:", np.round(curve[::15], 4))
    print(f"overlap with the specimen {align(np.asarray(g[best]), truth):.3f}, "
          f"{time.time() - started:.1f} s")


if __name__ == "__main__":
    main()
