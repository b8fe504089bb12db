"""Orbit determination from irregular radar passes: an extended Kalman filter, its
process-noise scale tuned by maximum likelihood over a small grid."""
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

MU = 398600.4418          # km^3 / s^2
J2 = 1.08263e-3
R_E = 6378.137
STATION = jnp.array([4510.0, 120.0, 4490.0])
SUBSTEP = 5.0             # s


def gravity(r):
    d = jnp.linalg.norm(r)
    z2 = (r[2] / d) ** 2
    fac = 1.5 * J2 * (R_E / d) ** 2
    oblate = jnp.array([1 - 5 * z2, 1 - 5 * z2, 3 - 5 * z2]) * fac
    return -MU * r / d ** 3 * (1 + oblate)


def flow(state, gap):
    """Propagate by `gap` seconds with RK4 substeps."""
    n = max(1, int(np.ceil(gap / SUBSTEP)))
    h = gap / n

    def f(s):
        return jnp.concatenate([s[3:], gravity(s[:3])])

    def step(s, _):
        k1 = f(s)
        k2 = f(s + 0.5 * h * k1)
        k3 = f(s + 0.5 * h * k2)
        k4 = f(s + h * k3)
        return s + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

    return jax.lax.scan(step, state, None, length=n)[0]


def radar(state):
    los = state[:3] - STATION
    rng = jnp.linalg.norm(los)
    return jnp.array([rng, jnp.arctan2(los[1], los[0]), jnp.arcsin(los[2] / rng)])


R_NOISE = jnp.diag(jnp.array([0.05, 3e-4, 3e-4]) ** 2)


@partial(jax.jit, static_argnames="gap")
def assimilate(mean, cov, z, q, gap):
    pred = flow(mean, gap)
    F = jax.jacfwd(partial(flow, gap=gap))(mean)
    Q = q * jnp.diag(jnp.array([gap ** 3 / 3] * 3 + [gap] * 3))
    P = F @ cov @ F.T + Q
    H = jax.jacfwd(radar)(pred)
    innov = z - radar(pred)
    S = H @ P @ H.T + R_NOISE
    K = jnp.linalg.solve(S, H @ P).T
    mean = pred + K @ innov
    I_KH = jnp.eye(6) - K @ H
    cov = I_KH @ P @ I_KH.T + K @ R_NOISE @ K.T
    ll = -0.5 * (innov @ jnp.linalg.solve(S, innov) + jnp.linalg.slogdet(S)[1])
    return mean, cov, ll


def orbit_truth(times):
    """The reference trajectory, integrated in numpy with a fixed fine step."""
    s = np.array([6878.0, 0.0, 300.0, -0.2, 5.3, 5.4])
    out, t = [], 0.0

    def f(s):
        r = s[:3]
        d = np.sqrt(r @ r)
        z2 = (r[2] / d) ** 2
        fac = 1.5 * J2 * (R_E / d) ** 2
        a = -MU * r / d ** 3 * (1 + fac * np.array([1 - 5 * z2, 1 - 5 * z2, 3 - 5 * z2]))
        return np.concatenate([s[3:], a])

    for target in times:
        n = max(1, int(np.ceil((target - t) / 10)))
        h = (target - t) / n
        for _ in range(n):
            k1 = f(s); k2 = f(s + .5 * h * k1); k3 = f(s + .5 * h * k2); k4 = f(s + h * k3)
            s = s + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        t = target
        out.append(s.copy())
    return np.stack(out)


def run_filter(times, zs, q):
    mean = jnp.array([6878.5, 0.4, 299.0, -0.2, 5.301, 5.399])
    cov = jnp.diag(jnp.array([1.0] * 3 + [1e-3] * 3) ** 2)
    last, total = 0.0, 0.0
    for t, z in zip(times, zs):
        mean, cov, ll = assimilate(mean, cov, z, q, gap=round(float(t - last), 2))
        total = total + ll
        last = t
    return mean, total


def main():
    rng = np.random.default_rng(11)
    gaps = rng.gamma(3.0, 6.0, size=32) + 2.0
    times = np.cumsum(np.round(gaps, 2))
    truth = orbit_truth(times)
    clean = np.asarray(jax.vmap(radar)(jnp.asarray(truth)))
    zs = jnp.asarray(clean + rng.normal(size=clean.shape) * np.array([0.05, 3e-4, 3e-4]))

    scores = {}
    for q in (1e-12, 1e-11, 1e-10, 1e-9, 1e-8):
        mean, ll = run_filter(times, zs, q)
        scores[q] = float(ll)
        miss = np.linalg.norm(np.asarray(mean[:3]) - truth[-1, :3])
        print(f"q={q:.0e}  log-lik {scores[q]:9.2f}  final position error {miss:.3f} km")
    print("best q", max(scores, key=scores.get))


if __name__ == "__main__":
    main()
