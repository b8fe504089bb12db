"""Reverse-time migration of a small synthetic marine survey.

For each shot the source wavefield is propagated through the smooth velocity model
and saved at every imaging time; the recorded data are then propagated backwards and
the two wavefields are correlated (zero-lag imaging condition).
"""
import time

import jax
import jax.numpy as jnp
import numpy as np

NZ, NX = 150, 180
DX = 10.0                      # m
DT = 1.0e-3                    # s
NT = 900
SAVE_EVERY = 3
F0 = 15.0
N_SHOTS = 9
ABSORB = 20


def ricker(nt, dt, f0):
    t = np.arange(nt) * dt - 1.2 / f0
    a = (np.pi * f0 * t) ** 2
    return ((1 - 2 * a) * np.exp(-a)).astype(np.float32)


def build_models():
    v = np.full((NZ, NX), 1800.0, np.float32)
    z, x = np.mgrid[:NZ, :NX]
    v[z > 60 + 8 * np.sin(x / 25.0)] = 2300.0
    v[z > 105 - 0.1 * x] = 2900.0
    smooth = v.copy()
    for _ in range(60):
        p = np.pad(smooth, 1, mode="edge")
        smooth = 0.25 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2])
    return v, smooth


def sponge():
    taper = np.ones((NZ, NX), np.float32)
    for i in range(ABSORB):
        g = np.exp(-(0.012 * (ABSORB - i)) ** 2)
        taper[NZ - 1 - i, :] *= g
        taper[:, i] *= g
        taper[:, NX - 1 - i] *= g
    return jnp.asarray(taper)


def laplacian(p):
    q = jnp.pad(p, 2)
    c0, c1, c2 = -5.0, 4.0 / 3.0, -1.0 / 12.0
    lap = c0 * p
    for c, s in ((c1, 1), (c2, 2)):
        lap = lap + c * (q[2 + s:NZ + 2 + s, 2:-2] + q[2 - s:NZ + 2 - s, 2:-2]
                         + q[2:-2, 2 + s:NX + 2 + s] + q[2:-2, 2 - s:NX + 2 - s])
    return lap / DX ** 2


class Propagator:
    def __init__(self, velocity, receivers):
        self.c2 = jnp.asarray((velocity * DT) ** 2)
        self.taper = sponge()
        self.rz, self.rx = receivers
        self.record = jax.jit(self._record)
        self.forward = jax.jit(self._forward)
        self.image_step = jax.jit(self._image_step)

    def _advance(self, p, p_old, force):
        p_new = 2 * p - p_old + self.c2 * (laplacian(p) + force)
        return p_new * self.taper, p * self.taper

    def _inject(self, pos, value):
        return jnp.zeros((NZ, NX)).at[pos].add(value / DX ** 2)

    def _record(self, shot, wavelet):
        """Shot gather at the receivers (true model)."""
        def step(carry, w):
            p, p_old = self._advance(*carry, self._inject((2, shot), w))
            return (p, p_old), p[self.rz, self.rx]
        zero = jnp.zeros((NZ, NX))
        _, traces = jax.lax.scan(step, (zero, zero), wavelet)
        return traces

    def _forward(self, state, snapshots, shot, wavelet_piece, slot):
        """SAVE_EVERY time steps, then keep the wavefield."""
        p, p_old = state
        for k in range(SAVE_EVERY):
            p, p_old = self._advance(p, p_old, self._inject((2, shot), wavelet_piece[k]))
        return (p, p_old), snapshots.at[slot].set(p)

    def _image_step(self, state, image, illum, source_field, data_piece):
        p, p_old = state
        for k in range(SAVE_EVERY):
            force = self._inject((self.rz, self.rx), data_piece[SAVE_EVERY - 1 - k])
            p, p_old = self._advance(p, p_old, force)
        return (p, p_old), image + p * source_field, illum + source_field ** 2


def migrate_shot(prop, shot, wavelet, data, image, illum):
    n_save = NT // SAVE_EVERY
    pieces = wavelet.reshape(n_save, SAVE_EVERY)
    zero = jnp.zeros((NZ, NX))
    snapshots = jnp.zeros((n_save, NZ, NX))
    state = (zero, zero)
    for i in range(n_save):
        state, snapshots = prop.forward(state, snapshots, shot, pieces[i], i)
    state = (zero, zero)
    data = data.reshape(n_save, SAVE_EVERY, -1)
    for i in reversed(range(n_save)):
        state, image, illum = prop.image_step(state, image, illum, snapshots[i], data[i])
    return image, illum


def main():
    true_v, smooth_v = build_models()
    rx = np.arange(4, NX - 4, 2)
    receivers = (np.full_like(rx, 3), rx)
    wavelet = ricker(NT, DT, F0)
    truth = Propagator(true_v, receivers)
    background = Propagator(smooth_v, receivers)
    image = jnp.zeros((NZ, NX))
    illum = jnp.zeros((NZ, NX))
    for n, shot in enumerate(np.linspace(25, NX - 25, N_SHOTS).astype(int)):
        t0 = time.time()
        data = truth.record(shot, wavelet) - background.record(shot, wavelet)
        image, illum = migrate_shot(background, shot, wavelet, data, image, illum)
        print(f"shot {n} at x={shot * DX:.0f} m: image rms "
              f"{float(jnp.sqrt(jnp.mean(image ** 2))):.3e}  ({time.time() - t0:.1f}s)")
    result = np.asarray(image / (illum + 1e-3 * illum.max()))
    profile = np.abs(np.diff(result, 2, axis=0)[20:-20, 40:-40]).mean(axis=1)
    print("strongest reflector near depth", (20 + profile.argmax()) * DX, "m")


if __name__ == "__main__":
    main()
