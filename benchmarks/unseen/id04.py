# %% Bayesian optimisation of a reaction yield (temperature, time, catalyst load, pH)
# Gaussian process with ARD Matern-5/2 kernel, hyperparameters by Adam, expected
# improvement maximised by multi-start gradient ascent.
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.linalg import cho_solve, solve_triangular
from jax.scipy.stats import norm

DIM = 4
N_INIT = 8
N_ROUNDS = 9
FIT_STEPS = 150
N_STARTS = 64
ASCENT_STEPS = 40

LOW = np.array([40.0, 0.5, 0.1, 3.0])
HIGH = np.array([120.0, 8.0, 5.0, 11.0])


# %% the "laboratory"
def run_experiment(u, rng):
    """Yield in per cent for the scaled conditions u in [0, 1]^4."""
    temp, time_h, load, ph = LOW + u * (HIGH - LOW)
    k1 = 2.0 * load ** 0.6 * np.exp(-3800.0 * (1 / (temp + 273) - 1 / 353))
    k2 = 0.06 * np.exp(-8500.0 * (1 / (temp + 273) - 1 / 353))
    activity = np.exp(-0.5 * ((ph - 7.6) / 1.3) ** 2)
    k1 = k1 * activity + 1e-6
    product = k1 / (k2 - k1) * (np.exp(-k1 * time_h) - np.exp(-k2 * time_h))
    return 100.0 * product + 0.5 * rng.standard_normal()


# %% the model
def kernel(params, a, b):
    scale = jnp.exp(params["log_length"])
    d2 = jnp.sum(((a[:, None, :] - b[None, :, :]) / scale) ** 2, -1)
    r = jnp.sqrt(5.0 * d2 + 1e-10)
    return jnp.exp(params["log_amp"]) * (1.0 + r + r * r / 3.0) * jnp.exp(-r)


def factor(params, x):
    noise = jnp.exp(params["log_noise"]) + 1e-4
    return jnp.linalg.cholesky(kernel(params, x, x) + noise * jnp.eye(x.shape[0]))


def neg_log_posterior(params, x, y):
    chol = factor(params, x)
    alpha = cho_solve((chol, True), y - params["mean"])
    nll = 0.5 * (y - params["mean"]) @ alpha + jnp.sum(jnp.log(jnp.diag(chol)))
    prior = (jnp.sum((params["log_length"] + 0.7) ** 2) + 0.5 * params["log_amp"] ** 2
             + 0.5 * (params["log_noise"] + 4.0) ** 2)
    return nll + prior


def expected_improvement(u, params, x, y, best):
    chol = factor(params, x)
    k = kernel(params, x, u[None])[:, 0]
    mu = params["mean"] + k @ cho_solve((chol, True), y - params["mean"])
    v = solve_triangular(chol, k, lower=True)
    sd = jnp.sqrt(jnp.maximum(jnp.exp(params["log_amp"]) - v @ v, 1e-8))
    z = (mu - best) / sd
    return sd * (z * norm.cdf(z) + norm.pdf(z))


loss_and_grad = jax.jit(jax.value_and_grad(neg_log_posterior))


@jax.jit
def propose(key, params, x, y):
    """Multi-start ascent on log EI in the unit cube; returns the best point."""
    best = jnp.max(y)
    log_ei = lambda u: jnp.log(expected_improvement(u, params, x, y, best) + 1e-12)

    def ascend(u, _):
        g = jax.vmap(jax.grad(log_ei))(u)
        g = g / (1.0 + jnp.linalg.norm(g, axis=-1, keepdims=True))
        return jnp.clip(u + 0.05 * g, 0.0, 1.0), None

    starts = jax.random.uniform(key, (N_STARTS, DIM))
    u, _ = jax.lax.scan(ascend, starts, None, length=ASCENT_STEPS)
    values = jax.vmap(log_ei)(u)
    return u[jnp.argmax(values)], jnp.max(values)


# %% hyperparameters
def fit(params, x, y):
    optimizer = optax.chain(optax.clip_by_global_norm(10.0), optax.adam(0.05))
    opt_state = optimizer.init(params)
    for _ in range(FIT_STEPS):
        loss, grads = loss_and_grad(params, x, y)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
    return params, loss


# %% the campaign
rng = np.random.default_rng(7)
key = jax.random.key(7)
X = rng.random((N_INIT, DIM))
Y = np.array([run_experiment(u, rng) for u in X])
print(f"initial design: best yield {Y.max():.1f} %")

params = {"log_length": jnp.full(DIM, -0.7), "log_amp": jnp.zeros(()),
          "log_noise": jnp.full((), -4.0), "mean": jnp.zeros(())}
for round_ in range(N_ROUNDS):
    x = jnp.asarray(X, jnp.float32)
    y = jnp.asarray((Y - Y.mean()) / Y.std(), jnp.float32)
    params, loss = fit(params, x, y)
    key, sub = jax.random.split(key)
    u, value = propose(sub, params, x, y)
    u = np.asarray(u, np.float64)      # the laboratory needs it
    X = np.vstack([X, u])
    Y = np.append(Y, run_experiment(u, rng))
    if round_ % 2 == 0 or round_ == N_ROUNDS - 1:
        print(f"round {round_:2d}: n={len(Y)} loss {float(loss):7.3f} log EI {float(value):6.2f}"
              f" yield {Y[-1]:5.1f} best {Y.max():5.1f}")

best = LOW + X[Y.argmax()] * (HIGH - LOW)
lengths = np.exp(np.asarray(params["log_length"]))
print("best conditions: T {:.0f} C, {:.1f} h, load {:.2f} %, pH {:.1f}".format(*best))
print("length scales", np.round(lengths, 2), f"best yield {Y.max():.1f} %")
