"""Design of a broadband dielectric beam-splitter coating.

The reflectance of a TiO2/SiO2 stack is computed with the characteristic-matrix
method over wavelength, angle of incidence and polarisation; the thicknesses are
optimised with Adam from several quarter-wave starting designs.
"""
import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax

N_LAYERS = 18
WAVELENGTHS = np.linspace(450.0, 750.0, 61).astype(np.float32)      # nm
ANGLES = (0.0, 30.0, 45.0)
N_SUBSTRATE = 1.52


def cauchy(a, b):
    return lambda lam: a + b / (lam * 1e-3) ** 2


TIO2 = cauchy(2.30, 0.025)
SIO2 = cauchy(1.45, 0.0035)


@dataclass
class Stack:
    """Alternating high/low layers on glass, air on the other side."""
    n_layers: int

    def indices(self, lam):
        return jnp.stack([TIO2(lam) if i % 2 == 0 else SIO2(lam)
                          for i in range(self.n_layers)])

    def admittance(self, n, sin0, polarisation):
        cos = jnp.sqrt(1.0 - (sin0 / n) ** 2)
        return (n * cos if polarisation == "s" else n / cos), cos

    def reflectance(self, thickness, lam, angle, polarisation):
        sin0 = jnp.sin(jnp.deg2rad(angle))
        n = self.indices(lam)
        eta, cos = self.admittance(n, sin0, polarisation)
        delta = 2.0 * jnp.pi * n * cos * thickness[:, None] / lam
        eta_in, _ = self.admittance(jnp.ones_like(lam), sin0, polarisation)
        eta_out, _ = self.admittance(jnp.full_like(lam, N_SUBSTRATE), sin0, polarisation)
        # lossless layers: the diagonal is real, the off-diagonal imaginary
        field_re, field_im = jnp.ones_like(lam), jnp.zeros_like(lam)
        mag_re, mag_im = eta_out, jnp.zeros_like(lam)
        for d, e in zip(delta[::-1], eta[::-1]):
            c, s = jnp.cos(d), jnp.sin(d)
            field_re, field_im, mag_re, mag_im = (
                c * field_re - s * mag_im / e,
                c * field_im + s * mag_re / e,
                c * mag_re - s * e * field_im,
                c * mag_im + s * e * field_re)
        num = (eta_in * field_re - mag_re) ** 2 + (eta_in * field_im - mag_im) ** 2
        den = (eta_in * field_re + mag_re) ** 2 + (eta_in * field_im + mag_im) ** 2
        return num / den


def target_curve(lam):
    return jnp.full_like(lam, 0.5)


def make_merit(stack, angles, sharpness=2.0):
    lam = jnp.asarray(WAVELENGTHS)

    def merit(thickness):
        total = 0.0
        for angle in angles:
            for pol in ("s", "p"):
                r = stack.reflectance(thickness, lam, angle, pol)
                total += jnp.mean(jnp.abs(r - target_curve(lam)) ** sharpness)
        thin = jnp.sum(jax.nn.relu(15.0 - thickness) ** 2) * 1e-4
        return total / (2 * len(angles)) + thin
    return merit


def make_refine(merit, steps, rate):
    schedule = optax.cosine_decay_schedule(rate, steps)
    tx = optax.adam(schedule)

    @jax.jit
    def refine(thickness):
        def body(carry, _):
            x, opt = carry
            value, grad = jax.value_and_grad(merit)(x)
            update, opt = tx.update(grad, opt)
            return (optax.apply_updates(x, update), opt), value
        (x, _), trace = jax.lax.scan(body, (thickness, tx.init(thickness)), None, length=steps)
        return x, trace
    return refine


def starting_designs(rng, count):
    centres = rng.uniform(500, 680, count)
    for centre in centres:
        n = np.where(np.arange(N_LAYERS) % 2 == 0, 2.38, 1.46)
        quarter = centre / (4 * n)
        yield jnp.asarray((quarter * rng.uniform(0.5, 1.3, N_LAYERS)).astype(np.float32))


def main():
    rng = np.random.default_rng(7)
    stack = Stack(N_LAYERS)
    coarse = make_refine(make_merit(stack, ANGLES[::2]), steps=200, rate=2.0)
    fine = make_refine(make_merit(stack, ANGLES), steps=300, rate=0.6)
    finalists = []
    t0 = time.time()
    for k, design in enumerate(starting_designs(rng, 4)):
        x, trace = coarse(design)
        finalists.append((float(trace[-1]), x))
        print(f"start {k}: merit {float(trace[0]):.5f} -> {float(trace[-1]):.5f}  "
              f"[{time.time() - t0:.1f}s]")
    finalists.sort(key=lambda pair: pair[0])
    for rank, (_, x) in enumerate(finalists[:2]):
        x, trace = fine(x)
        print(f"finalist {rank}: merit {float(trace[-1]):.6f}  thickness "
              f"{float(x.sum()):.0f} nm  [{time.time() - t0:.1f}s]")


if __name__ == "__main__":
    main()
