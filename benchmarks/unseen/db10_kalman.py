"""Kalman smoothing of many GPS tracks with noise levels learned by gradient (EM-like outer loop)."""
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

TRACKS, LENGTH, ROUNDS = 10, 200, 3
DT = 1.0
F = jnp.array([[1, 0, DT, 0], [0, 1, 0, DT], [0, 0, 1, 0], [0, 0, 0, 1]], jnp.float32)
H = jnp.eye(2, 4)


def tracks(rng):
    acc = 0.15 * rng.normal(size=(TRACKS, LENGTH, 2))
    vel = np.cumsum(acc, axis=1)
    pos = np.cumsum(vel, axis=1)
    noise = 2.0 * rng.normal(size=pos.shape)
    noise[rng.random(pos.shape[:2]) < 0.03] *= 6
    return pos.astype(np.float32), (pos + noise).astype(np.float32)


def process_noise(q):
    g = jnp.array([0.5 * DT**2, DT])
    blk = q * jnp.outer(g, g) + 1e-5 * jnp.eye(2)
    return jnp.kron(blk, jnp.eye(2))


def filter_track(obs, q, r):
    """Forward pass; returns filtered and predicted moments and the log-likelihood."""
    Q, R = process_noise(q), r * jnp.eye(2)

    def step(carry, z):
        m, P = carry
        mp, Pp = F @ m, F @ P @ F.T + Q
        S = H @ Pp @ H.T + R
        K = jnp.linalg.solve(S, H @ Pp).T
        resid = z - H @ mp
        m, P = mp + K @ resid, Pp - K @ S @ K.T
        ll = -0.5 * (resid @ jnp.linalg.solve(S, resid) + jnp.linalg.slogdet(2 * jnp.pi * S)[1])
        return (m, P), (m, P, mp, Pp, ll)

    start = (jnp.concatenate([obs[0], jnp.zeros(2)]), 10.0 * jnp.eye(4))
    _, (m, P, mp, Pp, ll) = jax.lax.scan(step, start, obs)
    return m, P, mp, Pp, ll.sum()


def smooth_track(m, P, mp, Pp):
    """Rauch-Tung-Striebel backward pass."""

    def back(carry, inp):
        ms, Ps = carry
        m, P, mp, Pp = inp
        G = jnp.linalg.solve(Pp, F @ P).T
        ms, Ps = m + G @ (ms - mp), P + G @ (Ps - Pp) @ G.T
        return (ms, Ps), ms

    last = (m[-1], P[-1])
    _, ms = jax.lax.scan(back, last, (m[:-1], P[:-1], mp[1:], Pp[1:]), reverse=True)
    return jnp.concatenate([ms, m[-1:]])


@jax.jit
def mean_nll(log_noise, batch):
    q, r = jnp.exp(log_noise)
    lls = jax.vmap(lambda z: filter_track(z, q, r)[-1])(batch)
    return -lls.mean() / LENGTH


def clean_outliers(obs, smooth, r):
    """Pull measurements further than four sigma back to the smoothed path."""
    gap = obs - smooth[:, :2]
    dist = jnp.linalg.norm(gap, axis=1, keepdims=True)
    limit = 4.0 * jnp.sqrt(r)
    return smooth[:, :2] + gap * jnp.minimum(1.0, limit / (dist + 1e-6))


def main():
    truth, obs = tracks(np.random.default_rng(0))
    log_noise = jnp.log(jnp.array([0.5, 1.0]))
    tx = optax.adam(0.1)
    value_and_grad = jax.jit(jax.value_and_grad(mean_nll))
    cleaned = list(obs)
    begin = time.perf_counter()
    for rnd in range(ROUNDS):
        opt, batch = tx.init(log_noise), np.stack(cleaned)
        for _ in range(30):
            nll, grad = value_and_grad(log_noise, batch)
            upd, opt = tx.update(grad, opt)
            log_noise = optax.apply_updates(log_noise, upd)
        q, r = jnp.exp(log_noise)
        error = []
        for i in range(TRACKS):
            m, P, mp, Pp, _ = filter_track(cleaned[i], q, r)
            smooth = smooth_track(m, P, mp, Pp)
            cleaned[i] = np.asarray(clean_outliers(obs[i], smooth, r))
            error.append(np.sqrt(np.mean((np.asarray(smooth[:, :2]) - truth[i]) ** 2)))
        print(
            f"round {rnd}: nll {float(nll):.3f}  q {float(q):.3f}  r {float(r):.2f}  "
            f"rmse {np.mean(error):.3f}  {time.perf_counter() - begin:.1f} s"
        )


if __name__ == "__main__":
    main()
