"""Dispersion analysis of a sounding rocket (Monte Carlo over wind, thrust and mass).

Planar 3-DoF flight with weathercocking; the aerodynamic coefficients come from a
wind-tunnel table over Mach number and angle of attack.
"""
import time

import jax
import jax.numpy as jnp
import numpy as np
from scipy.interpolate import RegularGridInterpolator

G0 = 9.80665
AREA = 0.0314
BURN_TIME = 6.0
DT = 0.02
STEPS = 1200
BATCH = 64


def wind_tunnel_tables():
    mach = np.array([0.0, 0.4, 0.7, 0.85, 0.95, 1.0, 1.05, 1.2, 1.5, 2.0, 3.0, 5.0])
    alpha = np.deg2rad([0.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 90.0])
    base = np.array([0.42, 0.40, 0.41, 0.46, 0.58, 0.66, 0.69, 0.65, 0.56, 0.47, 0.37, 0.30])
    cd = base[:, None] * (1 + 6.0 * np.sin(alpha)[None, :] ** 2)
    cn = (9.0 + 3.0 * np.exp(-(mach - 1.1) ** 2 / 0.1))[:, None] * np.sin(alpha)[None, :]
    return mach, alpha, cd, cn


class AeroDatabase:
    """Coefficients by interpolation in the wind-tunnel data."""

    def __init__(self):
        mach, alpha, cd, cn = wind_tunnel_tables()
        self.mach, self.alpha = mach, alpha
        table = np.stack([cd, cn], axis=-1)
        self._interp = RegularGridInterpolator((mach, alpha), table,
                                               bounds_error=False, fill_value=None)
        self.max_mach, self.max_alpha = mach[-1], alpha[-1]

    def _lookup(self, mach, alpha):
        points = np.stack([np.clip(np.asarray(mach), 0.0, self.max_mach),
                           np.clip(np.asarray(alpha), 0.0, self.max_alpha)], axis=-1)
        return self._interp(points).astype(np.float32)

    def __call__(self, mach, alpha):
        shape = jax.ShapeDtypeStruct(mach.shape + (2,), jnp.float32)
        return jax.pure_callback(self._lookup, shape, mach, alpha,
                                 vmap_method="broadcast_all")


def atmosphere(h):
    temperature = jnp.where(h < 11000.0, 288.15 - 0.0065 * h, 216.65)
    low = 1.225 * (jnp.maximum(288.15 - 0.0065 * h, 216.65) / 288.15) ** 4.2559
    high = 0.3639 * jnp.exp(-(h - 11000.0) / 6341.6)
    return jnp.where(h < 11000.0, low, high), jnp.sqrt(401.87 * temperature)


def make_flight(aero):
    def derivative(state, t, case):
        x, z, vx, vz, theta, omega = state
        thrust = jnp.where(t < BURN_TIME, 9000.0 * case["thrust"], 0.0)
        mass = case["mass"] + 28.0 * jnp.clip(1.0 - t / BURN_TIME, 0.0, 1.0)
        rho, sound = atmosphere(z)
        wind = case["wind"] * (jnp.maximum(z, 1.0) / 10.0) ** 0.14
        rx = vx - wind
        speed = jnp.sqrt(rx ** 2 + vz ** 2 + 1e-6)
        gamma = jnp.arctan2(vz, rx)
        incidence = jnp.arctan2(jnp.sin(theta - gamma), jnp.cos(theta - gamma))
        incidence = jnp.where(speed > 15.0, incidence, 0.0)
        coeff = aero(speed / sound, jnp.abs(incidence))
        q = 0.5 * rho * speed ** 2 * AREA
        drag, normal = q * coeff[0], q * coeff[1] * jnp.sign(incidence)
        ax = (thrust * jnp.cos(theta) - drag * rx / speed - normal * jnp.sin(theta)) / mass
        az = (thrust * jnp.sin(theta) - drag * vz / speed + normal * jnp.cos(theta)) / mass - G0
        on_rail = z < 6.0
        alpha_acc = jnp.where(on_rail, 0.0, (-normal * 0.45 - 0.03 * q * omega) / 95.0)
        flying = ((z > 0.0) | (t < 1.0)).astype(jnp.float32)
        return jnp.stack([vx, vz, ax, az, omega, alpha_acc]) * flying

    def fly(case):
        start = jnp.array([0.0, 1.0, 0.0, 0.1, 0.0, 0.0]).at[4].set(case["elevation"])

        def step(state, t):
            k1 = derivative(state, t, case)
            k2 = derivative(state + 0.5 * DT * k1, t + 0.5 * DT, case)
            k3 = derivative(state + 0.5 * DT * k2, t + 0.5 * DT, case)
            k4 = derivative(state + DT * k3, t + DT, case)
            state = state + DT / 6.0 * (k1 + 2 * k2 + 2 * k3 + k4)
            return state, state[1]
        final, height = jax.lax.scan(step, start, jnp.arange(STEPS) * DT)
        return final, height.max()

    return jax.jit(jax.vmap(fly))


def sample_cases(key, n):
    k = jax.random.split(key, 4)
    return {"thrust": 1.0 + 0.02 * jax.random.normal(k[0], (n,)),
            "mass": 42.0 + 0.4 * jax.random.normal(k[1], (n,)),
            "wind": 5.0 + 2.5 * jax.random.normal(k[2], (n,)),
            "elevation": jnp.deg2rad(84.0 + 0.3 * jax.random.normal(k[3], (n,)))}


def main():
    flight = make_flight(AeroDatabase())
    key = jax.random.key(2024)
    apogee, downrange = [], []
    for batch in range(9):
        t0 = time.time()
        key, sub = jax.random.split(key)
        final, top = flight(sample_cases(sub, BATCH))
        apogee.append(np.asarray(top))
        downrange.append(np.asarray(final[:, 0]))
        print(f"batch {batch}: apogee {apogee[-1].mean() / 1e3:.2f} km  "
              f"({time.time() - t0:.2f}s)")
    apogee, downrange = np.concatenate(apogee), np.concatenate(downrange)
    print(f"{apogee.size} flights: apogee {apogee.mean():.0f} +- {apogee.std():.0f} m, "
          f"downrange at {STEPS * DT:.0f} s {downrange.mean():.0f} +- {downrange.std():.0f} m")


if __name__ == "__main__":
    main()
