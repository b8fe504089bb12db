"""Linearised-drag shallow water on a periodic channel, compared with tide gauges that report at
irregular times."""
import argparse
import functools
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

G, DEPTH, DX = 9.81, 20.0, 500.0


class State(NamedTuple):
    h: jax.Array
    u: jax.Array
    v: jax.Array
    t: jax.Array


class Monitor:
    """Watches the run for a blow-up and remembers the extremes."""

    def __init__(self):
        self.peak, self.calls = 0.0, 0

    def look(self, highest, finite, steps):
        self.calls += steps
        self.peak = max(self.peak, float(highest))
        if not finite:
            raise FloatingPointError(f"no finite mass after {self.calls} steps")


monitor = Monitor()


def ddx(f):
    return (jnp.roll(f, -1, 1) - jnp.roll(f, 1, 1)) / (2 * DX)


def ddy(f):
    return (jnp.roll(f, -1, 0) - jnp.roll(f, 1, 0)) / (2 * DX)


def tendency(s, bed, drag, coriolis):
    h = s.h + bed
    dh = -(ddx(h * s.u) + ddy(h * s.v))
    du = -s.u * ddx(s.u) - s.v * ddy(s.u) + coriolis * s.v - G * ddx(s.h) - drag * s.u
    dv = -s.u * ddx(s.v) - s.v * ddy(s.v) - coriolis * s.u - G * ddy(s.h) - drag * s.v
    return dh, du, dv


def rk_step(s, dt, bed, drag, coriolis):
    def shifted(k, a):
        return State(s.h + a * k[0], s.u + a * k[1], s.v + a * k[2], s.t)

    k1 = tendency(s, bed, drag, coriolis)
    k2 = tendency(shifted(k1, dt / 2), bed, drag, coriolis)
    k3 = tendency(shifted(k2, dt), bed, drag, coriolis)
    h, u, v = (x + dt / 6 * (a + 4 * b + c) for x, a, b, c in zip(s[:3], k1, k2, k3))
    return State(h, u, v, s.t + dt)


@jax.jit
def advance(state, dt, bed, drag, coriolis, steps):
    def body(_, carry):
        s, highest, finite = carry
        s = rk_step(s, dt, bed, drag, coriolis)
        return s, jnp.maximum(highest, s.h.max()), finite & jnp.isfinite(s.h.mean())

    return jax.lax.fori_loop(0, steps, body, (state, jnp.float32(0), jnp.bool_(True)))


@jax.jit
def gauges(state, rows, cols):
    return state.h[rows, cols]


def geography(rng, ny, nx):
    y, x = np.mgrid[0:ny, 0:nx]
    bed = DEPTH * (1 - 0.3 * np.exp(-((x - nx / 2) ** 2 + (y - ny / 2) ** 2) / 80))
    surge = 1.0 * np.exp(-((x - nx / 5) ** 2 + (y - ny / 2) ** 2) / 30)
    return bed.astype(np.float32), surge.astype(np.float32)


def start(surge):
    zeros = jnp.zeros_like(surge)
    return State(jnp.asarray(surge), zeros, zeros, jnp.float32(0))


def report_times(rng, count, mean_gap):
    """The gauges report whenever the level has moved, not by the clock."""
    return np.cumsum(rng.gamma(3.0, mean_gap / 3.0, count))


def integrate(surge, bed, drag, times, dt, where):
    state, levels, looks, now = start(surge), [], [], 0.0
    for t in times:
        steps = max(1, round((t - now) / dt))
        state, highest, finite = advance(state, np.float32(dt), bed, np.float32(drag), np.float32(1e-4), np.int32(steps))
        looks.append((highest, finite, steps))
        levels.append(gauges(state, *where))
        now += steps * dt
    for look in jax.device_get(looks):
        monitor.look(*look)
    return jnp.stack(levels)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--ny", type=int, default=24)
    p.add_argument("--nx", type=int, default=48)
    p.add_argument("--reports", type=int, default=8)
    args = p.parse_args()

    rng = np.random.default_rng(17)
    bed, surge = map(jax.device_put, geography(rng, args.ny, args.nx))
    where = (jnp.array([4, 12, 20]), jnp.array([10, 30, 44]))
    times = report_times(rng, args.reports, 900.0)
    dt = 10.0
    began = time.perf_counter()
    truth = integrate(surge, bed, 2e-4, times, dt, where)
    observed = np.asarray(truth) + 0.005 * rng.standard_normal(truth.shape)
    misfits = {}
    for drag in (1e-4, 2e-4, 3e-4):
        levels = integrate(surge, bed, drag, times, dt, where)
        misfits[drag] = float(jnp.sqrt(jnp.mean((levels - observed) ** 2)))
        print(f"drag {drag:.1e} misfit {misfits[drag] * 100:.3f} cm  {time.perf_counter() - began:.1f} s")
    print(f"best drag {min(misfits, key=misfits.get):.1e}, highest level {monitor.peak:.2f} m, {monitor.calls} steps")


if __name__ == "__main__":
    main()
