"""Radial velocities of a two-planet system: affine-invariant ensemble sampler
(stretch moves) on the orbital elements, run inside lax.scan.
"""
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

WALKERS, PLANETS, PER = 48, 2, 5             # elements per planet
DIM = PLANETS * PER + 2                      # plus offset and jitter


def eccentric_anomaly_host(mean, ecc):
    """Newton's iteration to machine precision, from our old NumPy package."""
    mean, ecc = np.asarray(mean, np.float64), np.asarray(ecc, np.float64)
    big = mean + ecc * np.sin(mean)
    for _ in range(30):
        delta = (big - ecc * np.sin(big) - mean) / (1 - ecc * np.cos(big))
        big = big - delta
        if np.abs(delta).max() < 1e-12:
            break
    return big.astype(np.float32)


def eccentric_anomaly(mean, ecc):
    shape = jax.ShapeDtypeStruct(mean.shape, jnp.float32)
    return jax.pure_callback(eccentric_anomaly_host, shape, mean, ecc,
                             vmap_method="sequential")


def planet_velocity(p, t):
    period, amp = jnp.exp(p[0]), jnp.exp(p[1])
    ecc = jnp.minimum(p[2] ** 2 + p[3] ** 2, 0.9)
    omega = jnp.arctan2(p[3], p[2])
    mean = 2 * jnp.pi * t / period - p[4]
    mean = (mean + jnp.pi) % (2 * jnp.pi) - jnp.pi
    big = eccentric_anomaly(mean, ecc)
    nu = 2 * jnp.arctan2(jnp.sqrt(1 + ecc) * jnp.sin(big / 2), jnp.sqrt(1 - ecc) * jnp.cos(big / 2))
    return amp * (jnp.cos(nu + omega) + ecc * jnp.cos(omega))


def velocity(theta, t):
    planets = theta[:PLANETS * PER].reshape(PLANETS, PER)
    return sum(planet_velocity(p, t) for p in planets) + theta[-2]


def log_posterior(theta, t, rv, err):
    planets = theta[:PLANETS * PER].reshape(PLANETS, PER)
    sd = jnp.sqrt(err ** 2 + jnp.exp(2 * theta[-1]))
    fit = norm.logpdf(rv, velocity(theta, t), sd).sum()
    ecc = (planets[:, 2:4] ** 2).sum(-1)
    prior = jnp.where((ecc < 0.81).all() & (jnp.abs(theta[-1]) < 4), -4.0 * ecc.sum(), -jnp.inf)
    return fit + prior - 0.5 * (theta[-2] / 50) ** 2


batch_posterior = jax.vmap(log_posterior, in_axes=(0, None, None, None))


def stretch(half, other, logp, key, data):
    k1, k2, k3 = jax.random.split(key, 3)
    n = len(half)
    z = (jax.random.uniform(k1, (n,)) + 1.0) ** 2 / 2.0
    partner = other[jax.random.randint(k2, (n,), 0, n)]
    prop = partner + z[:, None] * (half - partner)
    new = batch_posterior(prop, *data)
    accept = jnp.log(jax.random.uniform(k3, (n,))) < (DIM - 1) * jnp.log(z) + new - logp
    return jnp.where(accept[:, None], prop, half), jnp.where(accept, new, logp), accept.mean()


@jax.jit
def run(walkers, logp, keys, data):
    def step(carry, key):
        (a, b), (la, lb) = carry
        k1, k2 = jax.random.split(key)
        a, la, r1 = stretch(a, b, la, k1, data)
        b, lb, r2 = stretch(b, a, lb, k2, data)
        return ((a, b), (la, lb)), (jnp.concatenate([a, b]), (r1 + r2) / 2)

    half = WALKERS // 2
    start = ((walkers[:half], walkers[half:]), (logp[:half], logp[half:]))
    (w, l), (trace, rate) = jax.lax.scan(step, start, keys)
    return jnp.concatenate(w), jnp.concatenate(l), trace, rate.mean()


def observe(rng, n=90):
    t = np.sort(rng.uniform(0, 400, n)).astype(np.float32)
    truth = np.array([np.log(37.0), np.log(22.0), 0.35, 0.2, 1.0,
                      np.log(121.0), np.log(14.0), -0.1, 0.25, -0.6, 3.0, 0.3], np.float32)
    clean = np.asarray(jax.jit(velocity)(jnp.asarray(truth), t))
    err = rng.uniform(1.0, 2.5, n).astype(np.float32)
    noise = np.sqrt(err ** 2 + np.exp(0.6)) * rng.standard_normal(n)
    return truth, (jnp.asarray(t), jnp.asarray(clean + noise, jnp.float32), jnp.asarray(err))


def main(blocks=9, length=50):
    rng = np.random.default_rng(8)
    truth, data = observe(rng)
    walkers = jnp.asarray(truth + 0.02 * rng.standard_normal((WALKERS, DIM)), jnp.float32)
    logp = jax.jit(batch_posterior)(walkers, *data)
    key, kept = jax.random.key(3), []
    for b in range(blocks):
        key, sub = jax.random.split(key)
        walkers, logp, trace, rate = run(walkers, logp, jax.random.split(sub, length), data)
        if b >= blocks // 3:
            kept.append(np.asarray(trace).reshape(-1, DIM))
        print(f"block {b:2d}: acceptance {float(rate):.2f}, best log posterior {float(logp.max()):.2f}")
    post = np.concatenate(kept)
    for k, name in enumerate(("inner", "outer")):
        per, amp = np.exp(post[:, k * PER]), np.exp(post[:, k * PER + 1])
        ecc = (post[:, k * PER + 2:k * PER + 4] ** 2).sum(-1)
        print(f"{name}: P {per.mean():.2f} ± {per.std():.2f} d, K {amp.mean():.2f} ± {amp.std():.2f} m/s, "
              f"e {ecc.mean():.2f}")


if __name__ == "__main__":
    main()
