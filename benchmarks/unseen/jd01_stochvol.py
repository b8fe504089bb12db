# Bootstrap particle filter for a two-factor stochastic-volatility model of
# daily returns; a grid of persistence values is compared by its evidence.
import jax
import jax.numpy as jnp
import numpy as np

N_DAYS = 500
N_PARTICLES = 4000
SEED = 4
TRUE = dict(mu=-9.2, phi_slow=0.985, phi_fast=0.7, sig_slow=0.12, sig_fast=0.35)


def simulate(n_days, rng, p):
    slow = fast = 0.0
    out = np.zeros(n_days, np.float32)
    for t in range(n_days):
        slow = p["phi_slow"] * slow + p["sig_slow"] * rng.standard_normal()
        fast = p["phi_fast"] * fast + p["sig_fast"] * rng.standard_normal()
        out[t] = np.exp(0.5 * (p["mu"] + slow + fast)) * rng.standard_normal()
    return out


@jax.jit
def propagate(key, particles, theta):
    noise = jax.random.normal(key, particles.shape)
    phi = jnp.stack([theta["phi_slow"], theta["phi_fast"]])
    sig = jnp.stack([theta["sig_slow"], theta["sig_fast"]])
    return particles * phi + noise * sig


@jax.jit
def reweight(logw, particles, ret, theta):
    logvar = theta["mu"] + particles.sum(axis=1)
    loglik = -0.5 * (jnp.log(2 * jnp.pi) + logvar + ret ** 2 * jnp.exp(-logvar))
    logw = logw + loglik
    total = jax.scipy.special.logsumexp(logw)
    return logw - total, total


@jax.jit
def effective_size(logw):
    w = jnp.exp(logw - jnp.max(logw))
    w = w / jnp.sum(w)
    return 1.0 / jnp.sum(w ** 2)


@jax.jit
def systematic_resample(key, logw):
    n = logw.shape[0]
    cdf = jnp.cumsum(jnp.exp(logw))
    cdf = cdf / cdf[-1]
    u = (jnp.arange(n) + jax.random.uniform(key)) / n
    return jnp.clip(jnp.searchsorted(cdf, u), 0, n - 1)


class Tracker:
    """Weighted quantiles of the log-variance, for the fan chart."""

    def __init__(self, probs=(0.05, 0.25, 0.5, 0.75, 0.95)):
        self.probs = jnp.asarray(probs)
        self.fan = []

    def update(self, particles, logw, mu):
        h = mu + particles.sum(axis=1)
        order = jnp.argsort(h)
        cdf = jnp.cumsum(jnp.exp(logw)[order])
        cdf = cdf / cdf[-1]
        idx = jnp.clip(jnp.searchsorted(cdf, self.probs), 0, h.shape[0] - 1)
        self.fan.append(h[order][idx])

    def result(self):
        return np.asarray(jnp.stack(self.fan))


def run_filter(key, returns, theta, tracker):
    particles = jnp.zeros((N_PARTICLES, 2))
    logw = jnp.full(N_PARTICLES, -jnp.log(N_PARTICLES))
    flat = logw
    evidence = jnp.float32(0.0)
    n_resampled = 0
    keys = jax.random.split(key, (len(returns), 2))
    for t in range(len(returns)):
        particles = propagate(keys[t, 0], particles, theta)
        logw, inc = reweight(logw, particles, returns[t], theta)
        evidence = evidence + inc
        tracker.update(particles, logw, theta["mu"])
        if float(effective_size(logw)) < 0.5 * N_PARTICLES:
            idx = systematic_resample(keys[t, 1], logw)
            particles, logw = particles[idx], flat
            n_resampled += 1
    return float(evidence), n_resampled          # read once per filter pass


def main():
    rng = np.random.default_rng(SEED)
    returns = jnp.asarray(simulate(N_DAYS, rng, TRUE))
    grid = [0.90, 0.95, 0.97, 0.985, 0.995]
    scores = []
    for i, phi in enumerate(grid):
        theta = {k: jnp.float32(v) for k, v in {**TRUE, "phi_slow": phi}.items()}
        tracker = Tracker()
        evidence, n_res = run_filter(jax.random.key(SEED + i), returns, theta, tracker)
        fan = tracker.result()
        width = np.mean(fan[:, -1] - fan[:, 0])
        scores.append(evidence)
        print(f"phi {phi:.3f}  log evidence {evidence:9.2f}  resampled {n_res:3d}/{N_DAYS}"
              f"  90% band {width:.2f}")
    best = grid[int(np.argmax(scores))]
    print(f"best persistence on the grid: {best} (true {TRUE['phi_slow']})")


if __name__ == "__main__":
    main()
