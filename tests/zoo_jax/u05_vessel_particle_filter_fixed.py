"""Bootstrap particle filters over AIS tracks of vessels; estimates a drift scale by likelihood."""
import collections
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

N_PARTICLES = 512
TRACK_LENGTH = 600
N_TRACKS = 4
GRID = np.linspace(0.1, 0.4, 4)

diagnostics = collections.defaultdict(list)


class Filter(NamedTuple):
    pos: jax.Array
    vel: jax.Array
    log_w: jax.Array
    log_lik: jax.Array


class Track(NamedTuple):
    mmsi: int
    fixes: np.ndarray
    noise: float


def simulate_track(rng, mmsi):
    """Steering vessel with occasional turns, observed with a noise of its transponder class."""
    noise = float(rng.choice([0.3, 0.5, 0.8]))
    pos, vel = rng.normal(size=2) * 5, rng.normal(size=2) * 0.5
    fixes = []
    for _ in range(TRACK_LENGTH):
        if rng.uniform() < 0.05:
            vel = rng.normal(size=2) * 0.5
        vel = vel + rng.normal(size=2) * 0.15
        pos = pos + vel
        fixes.append(pos + rng.normal(size=2) * noise)
    return Track(mmsi, np.asarray(fixes, np.float32), noise)


def record_ess(mmsi, ess):
    diagnostics[int(mmsi)] += np.asarray(ess).tolist()


def systematic_resample(key, log_w):
    weights = jax.nn.softmax(log_w)
    n = log_w.shape[0]
    u = (jax.random.uniform(key) + jnp.arange(n)) / n
    return jnp.clip(jnp.searchsorted(jnp.cumsum(weights), u), 0, n - 1)


def propagate(key, state, drift):
    vel = state.vel + drift * jax.random.normal(key, state.vel.shape)
    return state._replace(pos=state.pos + vel, vel=vel)


def observe(state, fix, noise):
    d2 = jnp.sum((state.pos - fix) ** 2, axis=-1) / noise ** 2
    log_p = -0.5 * d2 - 2 * jnp.log(noise)
    log_w = state.log_w + log_p
    log_norm = jax.nn.logsumexp(log_w)
    return state._replace(log_w=log_w - log_norm, log_lik=state.log_lik + log_norm)


def filter_step(state, key, fix, noise, drift):
    k1, k2 = jax.random.split(key)
    state = observe(propagate(k1, state, drift), fix, noise)
    ess = 1.0 / jnp.sum(jnp.exp(2 * state.log_w))
    idx = systematic_resample(k2, state.log_w)
    resampled = Filter(state.pos[idx], state.vel[idx],
                       jnp.full_like(state.log_w, -jnp.log(len(state.log_w))), state.log_lik)
    low = ess < 0.5 * N_PARTICLES
    state = jax.tree.map(lambda a, b: jnp.where(low, a, b), resampled, state)
    return state, (jnp.sum(jnp.exp(state.log_w)[:, None] * state.pos, axis=0), ess)


@jax.jit
def start(key, first_fix, noise):
    k1, k2 = jax.random.split(key)
    pos = first_fix + noise * jax.random.normal(k1, (N_PARTICLES, 2))
    vel = 0.5 * jax.random.normal(k2, (N_PARTICLES, 2))
    return Filter(pos, vel, jnp.full(N_PARTICLES, -jnp.log(float(N_PARTICLES))), jnp.float32(0.0))


@jax.jit
def filtered(key, fixes, noise, drift):
    key_start, key_scan = jax.random.split(key)
    state = start(key_start, fixes[0], noise)
    keys = jax.random.split(key_scan, len(fixes))
    state, (means, ess) = jax.lax.scan(
        lambda s, kf: filter_step(s, kf[0], kf[1], noise, drift), state, (keys, fixes))
    return state.log_lik, means, ess


def run_filter(key, track, drift):
    """Log-likelihood of the track and the filtered positions."""
    log_lik, means, ess = filtered(key, track.fixes, np.float32(track.noise), np.float32(drift))
    record_ess(track.mmsi, ess)
    return log_lik, means


def profile_likelihood(key, tracks):
    """Total log-likelihood on a grid of drift scales."""
    table = []
    for track in tracks:
        row = []
        for drift in GRID:
            log_lik, _ = run_filter(key, track, drift)
            row.append(log_lik)
        table.append(np.stack(jax.device_get(row)))
        print(f"vessel {track.mmsi}: best drift {GRID[int(np.argmax(table[-1]))]:.2f}")
    return np.stack(table).sum(0)


def main():
    rng = np.random.default_rng(17)
    tracks = [simulate_track(rng, 244_000_000 + i) for i in range(N_TRACKS)]
    key = jax.random.key(1)
    t0 = time.perf_counter()
    total = profile_likelihood(key, tracks)
    best = GRID[int(np.argmax(total))]
    print(f"drift scale {best:.3f} ({time.perf_counter() - t0:.1f}s)")
    errors = []
    for track in tracks:
        _, means = run_filter(key, track, best)
        errors.append(float(np.sqrt(np.mean((np.asarray(means) - track.fixes) ** 2))))
    ess = np.mean([np.mean(v) for v in diagnostics.values()])
    print(f"rms innovation {np.mean(errors):.3f}, mean effective sample size {ess:.0f}")


if __name__ == "__main__":
    main()
