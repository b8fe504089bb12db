"""A day of quarter-hourly load flows for a synthetic transmission grid.

Newton-Raphson in polar coordinates, Jacobian by forward-mode differentiation.  Tap changers on the
transformers follow a daily schedule in the morning and in the evening; the rest of the day the
topology stands still.  The study reports the lowest voltage and the losses.
"""
import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

SLACK, PV, PQ = 0, 1, 2


@dataclass
class Network:
    kind: np.ndarray
    p_load: np.ndarray
    q_load: np.ndarray
    p_gen: np.ndarray
    v_set: np.ndarray
    ends: np.ndarray
    z: np.ndarray
    charging: np.ndarray
    tap: np.ndarray

    @property
    def n(self):
        return len(self.kind)


def synthetic_grid(n, seed):
    rng = np.random.default_rng(seed)
    xy = rng.uniform(size=(n, 2))
    dist = np.linalg.norm(xy[:, None] - xy[None], axis=-1)
    ends = set()
    for i in range(1, n):
        ends.add((int(np.argmin(dist[i, :i])), i))
        for j in np.argsort(dist[i])[1:3]:
            ends.add((min(i, int(j)), max(i, int(j))))
    ends = np.array(sorted(ends))
    length = dist[ends[:, 0], ends[:, 1]] + 0.02
    kind = np.full(n, PQ)
    kind[rng.choice(n, n // 5, replace=False)] = PV
    kind[0] = SLACK
    load = rng.uniform(0.02, 0.18, n)
    gen = np.where(kind == PV, load.sum() / (kind == PV).sum() * 0.9, 0.0)
    tap = np.where(rng.uniform(size=len(ends)) < 0.15, 0.98, 1.0)
    return Network(kind, load, 0.3 * load, gen, np.where(kind == PQ, 1.0, 1.03), ends,
                   length * (0.02 + 0.2j), 0.05 * length, tap)


class AdmittanceModel:
    """Bus admittance matrix with off-nominal taps."""

    def __init__(self, net):
        self.net = net

    def matrix(self, tap):
        y_bus = jnp.zeros((self.net.n, self.net.n), jnp.complex128)
        for (f, t), z, b, a in zip(self.net.ends, self.net.z, self.net.charging, tap):
            y = 1.0 / z
            y_bus = y_bus.at[f, f].add((y + 0.5j * b) / a ** 2)
            y_bus = y_bus.at[t, t].add(y + 0.5j * b)
            y_bus = y_bus.at[f, t].add(-y / a)
            y_bus = y_bus.at[t, f].add(-y / a)
        return y_bus


def make_solver(net, tol=1e-8, most=12):
    pvpq = jnp.asarray(np.flatnonzero(net.kind != SLACK))
    pq = jnp.asarray(np.flatnonzero(net.kind == PQ))
    v_set = jnp.asarray(net.v_set)
    n_ang = len(pvpq)

    def voltages(x):
        angle = jnp.zeros(net.n).at[pvpq].set(x[:n_ang])
        mag = v_set.at[pq].set(x[n_ang:])
        return mag * jnp.exp(1j * angle)

    def mismatch(x, y_bus, s):
        v = voltages(x)
        ds = v * jnp.conj(y_bus @ v) - s
        return jnp.concatenate([ds.real[pvpq], ds.imag[pq]])

    @jax.jit
    def solve(x, y_bus, s):
        def keep_on(state):
            _, norm, it = state
            return (norm > tol) & (it < most)

        def newton(state):
            x, _, it = state
            f = mismatch(x, y_bus, s)
            x = x - jnp.linalg.solve(jax.jacfwd(mismatch)(x, y_bus, s), f)
            return x, jnp.abs(mismatch(x, y_bus, s)).max(), it + 1

        x, norm, it = jax.lax.while_loop(keep_on, newton, (x, jnp.inf, 0))
        v = voltages(x)
        losses = jnp.sum((v * jnp.conj(y_bus @ v)).real)
        return x, norm, it, jnp.abs(v).min(), losses

    flat = jnp.concatenate([jnp.zeros(n_ang), jnp.ones(len(pq))])
    return solve, flat


def load_profile(hour):
    return 0.7 + 0.25 * np.exp(-((hour - 12) / 5) ** 2) + 0.2 * np.exp(-((hour - 19) / 2) ** 2)


def tap_schedule(net, hour):
    """Day setting from 6 to 22 h, night setting otherwise."""
    day = 6.0 <= hour < 22.0
    return np.where(net.tap < 1.0, net.tap - (0.02 if day else 0.0), 1.0)


def main():
    net = synthetic_grid(110, seed=9)
    model = AdmittanceModel(net)
    solve, x = make_solver(net)
    rng = np.random.default_rng(1)
    rows, began = [], time.time()
    for quarter in range(96):
        hour = quarter / 4
        scale = load_profile(hour) * rng.normal(1.0, 0.02, net.n)
        s = (net.p_gen * scale.mean() - net.p_load * scale) - 1j * net.q_load * scale
        y_bus = model.matrix(tap_schedule(net, hour))
        x, norm, it, lowest, losses = solve(x, y_bus, jnp.asarray(s))
        rows.append(jnp.stack([norm, it, lowest, losses]))
        if quarter % 24 == 23:
            print(f"{hour:5.2f} h   lowest voltage {float(lowest):.4f}, losses {float(losses):.4f}")
    table = np.asarray(jnp.stack(rows))
    assert (table[:, 0] < 1e-8).all()
    print(f"{len(net.ends)} branches, {table[:, 1].mean():.1f} Newton steps on average, "
          f"worst voltage {table[:, 2].min():.4f} at {table[:, 2].argmin() / 4:.2f} h")
    print(f"energy lost {table[:, 3].sum() / 4:.3f} p.u.h   ({time.time() - began:.1f} s)")


if __name__ == "__main__":
    main()
