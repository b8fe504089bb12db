"""Full-waveform inversion of a 2-D acoustic velocity model (cross-hole geometry),
multi-scale: the inversion begins with low source frequencies and moves up."""
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

NZ, NX = 44, 36
DX = 10.0
DT = 1.2e-3
NT = 260
SHOTS = np.arange(6, NZ - 4, 8)          # source depths in the left hole
RECEIVERS = np.arange(3, NZ - 3, 2)      # receiver depths in the right hole
V_BACKGROUND = 2200.0


class Stage(NamedTuple):
    peak_hz: float
    iterations: int
    smooth: float
    rate: float


STAGES = [Stage(10.0, 6, 3.0, 12.0), Stage(16.0, 6, 2.0, 10.0), Stage(24.0, 6, 1.0, 8.0)]


def true_model():
    z, x = np.mgrid[0:NZ, 0:NX]
    v = np.full((NZ, NX), V_BACKGROUND)
    v += 180.0 * np.exp(-(((z - 16) / 6.0) ** 2 + ((x - 20) / 5.0) ** 2))
    v -= 160.0 * np.exp(-(((z - 31) / 5.0) ** 2 + ((x - 14) / 6.0) ** 2))
    return jnp.asarray(v, jnp.float32)


def ricker(peak_hz):
    t = np.arange(NT) * DT - 1.3 / peak_hz
    a = (np.pi * peak_hz * t) ** 2
    return jnp.asarray((1 - 2 * a) * np.exp(-a), jnp.float32)


def sponge(width=8, strength=0.12):
    def edge(n):
        d = np.minimum(np.arange(n), np.arange(n)[::-1])
        return np.exp(-(strength * np.maximum(width - d, 0) / width) ** 2)
    return jnp.asarray(np.outer(edge(NZ), edge(NX)), jnp.float32)


DAMP = sponge()


def laplacian(p):
    q = jnp.pad(p, 1)
    return (q[2:, 1:-1] + q[:-2, 1:-1] + q[1:-1, 2:] + q[1:-1, :-2] - 4.0 * p) / DX ** 2


def record(velocity, source_z, wavelet):
    """Pressure at the receivers for one shot: (NT, receivers)."""
    c2 = (velocity * DT) ** 2
    src = jnp.zeros((NZ, NX)).at[source_z, 2].set(DX ** 2)

    def step(carry, w):
        prev, now = carry
        nxt = 2.0 * now - prev + c2 * laplacian(now) + src * w
        nxt, now = nxt * DAMP, now * DAMP
        return (now, nxt), nxt[RECEIVERS, NX - 3]

    _, traces = jax.lax.scan(step, (jnp.zeros((NZ, NX)),) * 2, wavelet)
    return traces


shoot_all = jax.jit(jax.vmap(record, in_axes=(None, 0, None)))


@partial(jax.jit, static_argnames="sigma")
def smooth(g, sigma):
    radius = int(3 * sigma)
    k = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    k = jnp.asarray(k / k.sum(), jnp.float32)
    for axis in (0, 1):
        g = jnp.apply_along_axis(lambda row: jnp.convolve(row, k, mode="same"), axis, g)
    return g


class Inversion:
    def __init__(self, shots, start):
        self.shots = jnp.asarray(shots)
        self.velocity = start
        self.history = []

    def misfit_and_gradient(self, wavelet, observed, scale):
        def misfit(v):
            predicted = jax.vmap(record, in_axes=(None, 0, None))(v, self.shots, wavelet)
            return 0.5 * jnp.mean(((predicted - observed) / scale) ** 2)
        return jax.jit(jax.value_and_grad(misfit))(self.velocity)

    def run_stage(self, stage, wavelet, observed):
        optimizer = optax.adam(stage.rate, b1=0.8)
        opt_state = optimizer.init(self.velocity)
        scale = jnp.std(observed)
        for it in range(stage.iterations):
            value, grad = self.misfit_and_gradient(wavelet, observed, scale)
            grad = smooth(grad, stage.smooth)
            updates, opt_state = optimizer.update(grad, opt_state)
            self.velocity = jnp.clip(optax.apply_updates(self.velocity, updates), 1500.0, 3000.0)
            self.history.append(float(value))
        return self.history[-1]


def main():
    truth = true_model()
    inversion = Inversion(SHOTS, jnp.full((NZ, NX), V_BACKGROUND, jnp.float32))
    rng = np.random.default_rng(0)
    print(f"{len(SHOTS)} shots, {len(RECEIVERS)} receivers, {NT} samples")
    for stage in STAGES:
        wavelet = ricker(stage.peak_hz)
        observed = shoot_all(truth, inversion.shots, wavelet)
        noise = 0.02 * float(jnp.std(observed)) * rng.standard_normal(observed.shape)
        last = inversion.run_stage(stage, wavelet, observed + jnp.asarray(noise, jnp.float32))
        error = jnp.sqrt(jnp.mean((inversion.velocity - truth) ** 2))
        print(f"{stage.peak_hz:4.0f} Hz: misfit {last:.5f}, rms velocity error {float(error):.1f} m/s")
    v = np.asarray(inversion.velocity)
    print(f"fast anomaly {v[16, 20]:.0f} m/s (true {float(truth[16, 20]):.0f}), "
          f"slow anomaly {v[31, 14]:.0f} m/s (true {float(truth[31, 14]):.0f})")


if __name__ == "__main__":
    main()
