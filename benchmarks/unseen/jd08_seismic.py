"""Acoustic full-waveform modelling of a marine shot line.

Second-order finite differences with a sponge boundary.  For every shot the
wavefield is kept at regular times (for the imaging condition) and correlated
with the back-propagated receiver data: a reverse-time migration image.
"""
import argparse

import jax
import jax.numpy as jnp
import numpy as np

NZ, NX = 160, 240
H = 10.0            # m
DT = 1.2e-3         # s
SPONGE = 24
KEEP_EVERY = 5


def velocity_models():
    z = np.arange(NZ)[:, None] * np.ones((1, NX))
    x = np.arange(NX)[None] * np.ones((NZ, 1))
    smooth = np.where(z < 30, 1500.0, 1800.0 + 8.0 * (z - 30))
    horizon = 85 + 14 * np.sin(x / 32.0)
    true = np.where(z > horizon, smooth + 500.0, smooth)
    return jnp.asarray(true, jnp.float32), jnp.asarray(smooth, jnp.float32)


def sponge():
    iz, ix = np.arange(NZ), np.arange(NX)
    dz = np.maximum(0, SPONGE - np.minimum(iz + SPONGE, NZ - 1 - iz))   # free surface on top
    dx = np.maximum(0, SPONGE - np.minimum(ix, NX - 1 - ix))
    damp = np.exp(-((0.0045 * dz[:, None] * 3) ** 2)) * np.exp(-((0.0045 * dx[None] * 3) ** 2))
    return jnp.asarray(damp, jnp.float32)


def ricker(n_steps, peak_hz=14.0):
    t = np.arange(n_steps) * DT - 1.2 / peak_hz
    a = (np.pi * peak_hz * t) ** 2
    return ((1 - 2 * a) * np.exp(-a)).astype(np.float32)


def laplacian(p):
    lap = -4.0 * p
    lap = lap + jnp.pad(p[1:], ((0, 1), (0, 0))) + jnp.pad(p[:-1], ((1, 0), (0, 0)))
    lap = lap + jnp.pad(p[:, 1:], ((0, 0), (0, 1))) + jnp.pad(p[:, :-1], ((0, 0), (1, 0)))
    return lap / H ** 2


@jax.jit
def advance(p, p_old, vel, damp, z, x, amplitude):
    """KEEP_EVERY time steps; amplitude is (KEEP_EVERY, len(x))."""
    def step(carry, amp):
        p, p_old = carry
        new = 2 * p - p_old + (vel * DT) ** 2 * laplacian(p)
        new = (new * damp).at[z, x].add(amp)
        return (new, p * damp), new[z_rec, x_rec]

    z_rec, x_rec = jnp.full(NX, 3), jnp.arange(NX)
    (p, p_old), traces = jax.lax.scan(step, (p, p_old), amplitude)
    return p, p_old, traces


class Snapshots:
    """Source wavefield at the kept times, preallocated on the device."""

    def __init__(self, n_kept):
        self.field = jnp.zeros((n_kept, NZ, NX), jnp.float32)

    def put(self, k, p):
        self.field = self.field.at[k].set(p)


def forward(vel, damp, src_x, wavelet, snapshots=None):
    p = p_old = jnp.zeros((NZ, NX), jnp.float32)
    z, x = jnp.array([4]), jnp.array([src_x])
    traces = []
    for k, amps in enumerate(wavelet):
        p, p_old, rec = advance(p, p_old, vel, damp, z, x, amps)
        traces.append(rec)
        if snapshots is not None:
            snapshots.put(k, p)
    return jnp.stack(traces)


@jax.jit
def migrate(vel, damp, residual, field):
    """Back-propagate the residual and correlate with the kept wavefield."""
    z, x = jnp.full(NX, 3), jnp.arange(NX)

    def back(carry, inp):
        p, p_old, image, illum = carry
        amps, source = inp
        p, p_old, _ = advance(p, p_old, vel, damp, z, x, amps[::-1])
        return (p, p_old, image + p * source, illum + source ** 2), None

    blank = jnp.zeros((NZ, NX), jnp.float32)
    carry, _ = jax.lax.scan(back, (blank,) * 4, (residual, field), reverse=True)
    return carry[2], carry[3]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--shots", type=int, default=2)
    ap.add_argument("--steps", type=int, default=1100)
    args = ap.parse_args()
    true, smooth = velocity_models()
    damp = sponge()
    n_kept = args.steps // KEEP_EVERY
    wavelet = list(jnp.asarray(ricker(args.steps).reshape(n_kept, KEEP_EVERY, 1)))
    image = illum = jnp.zeros((NZ, NX), jnp.float32)
    for src_x in np.linspace(80, NX - 80, args.shots).astype(int):
        observed = forward(true, damp, src_x, wavelet)
        snaps = Snapshots(n_kept)
        modelled = forward(smooth, damp, src_x, wavelet, snaps)
        residual = observed - modelled
        im, il = migrate(smooth, damp, residual, snaps.field)
        image, illum = image + im, illum + il
        print(f"shot at {src_x * H:6.0f} m: residual rms {float(jnp.std(residual)):.3e}")
    section = np.asarray(image / (illum + 1e-3 * illum.max()))
    section = np.diff(section, n=2, axis=0)[50:130, 60:180]      # Laplacian-type filter
    depth = 51 + np.abs(section).argmax(0)
    want = 85 + 14 * np.sin(np.arange(60, 180) / 32.0)
    print(f"horizon picked within {np.median(np.abs(depth - want)) * H:.0f} m (median)")


if __name__ == "__main__":
    main()
