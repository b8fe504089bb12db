"""Which covariance explains a seasonal series? Gaussian-process evidence maximised for three kernels."""
import argparse
import time
from typing import Callable

import jax

jax.config.update("jax_enable_x64", True)      # the Cholesky factors are ill-conditioned in single precision

import jax.numpy as jnp
import numpy as np
import optax

JITTER = 1e-8
CHECK_EVERY = 20


def squared(a, b, p):
    return jnp.exp(2 * p["amp"] - 0.5 * ((a[:, None] - b) / jnp.exp(p["len"])) ** 2)


def matern32(a, b, p):
    r = jnp.sqrt(3.0) * jnp.abs(a[:, None] - b) / jnp.exp(p["len"])
    return jnp.exp(2 * p["amp"]) * (1 + r) * jnp.exp(-r)


def periodic(a, b, p):
    wave = jnp.sin(jnp.pi * (a[:, None] - b) / jnp.exp(p["period"])) ** 2
    trend = jnp.exp(2 * p["trend_amp"] - 0.5 * ((a[:, None] - b) / jnp.exp(p["trend_len"])) ** 2)
    return jnp.exp(2 * p["amp"] - 2 * wave / jnp.exp(2 * p["len"])) + trend


KERNELS: dict[str, tuple[Callable, dict]] = {
    "squared exponential": (squared, {"amp": 0.0, "len": 0.0}),
    "Matern 3/2": (matern32, {"amp": 0.0, "len": 0.0}),
    "periodic + trend": (periodic, {"amp": 0.0, "len": 0.3, "period": float(np.log(1.05)),
                                    "trend_amp": 0.0, "trend_len": 1.5}),
}


def make_series(n, seed):
    rng = np.random.default_rng(seed)
    t = np.sort(rng.uniform(0, 10, n))
    y = np.sin(2 * np.pi * t) + 0.4 * np.sin(4 * np.pi * t + 0.5) + 0.6 * np.sin(0.5 * t) + 0.2 * rng.normal(size=n)
    return t, y - y.mean()


def negative_evidence(kernel, params, t, y):
    cov = kernel(t, t, params) + (jnp.exp(2 * params["noise"]) + JITTER) * jnp.eye(len(t))
    chol = jnp.linalg.cholesky(cov)
    alpha = jax.scipy.linalg.cho_solve((chol, True), y)
    return 0.5 * y @ alpha + jnp.sum(jnp.log(jnp.diag(chol))) + 0.5 * len(t) * jnp.log(2 * jnp.pi)


def fit(kernel, start, t, y, max_steps, tol):
    """Adam on the log hyperparameters, in compiled stretches; stops when a stretch gains too little."""
    opt = optax.adam(0.05)

    @jax.jit
    def stretch(params, state):
        def body(carry, _):
            params, state = carry
            value, grads = jax.value_and_grad(lambda q: negative_evidence(kernel, q, t, y))(params)
            updates, state = opt.update(grads, state)
            return (optax.apply_updates(params, updates), state), value

        (params, state), values = jax.lax.scan(body, (params, state), None, length=CHECK_EVERY)
        return params, state, values[-1]

    params = {k: jnp.asarray(v, jnp.float64) for k, v in {**start, "noise": -1.0}.items()}
    state, previous = opt.init(params), np.inf
    for done in range(CHECK_EVERY, max_steps + 1, CHECK_EVERY):
        params, state, value = stretch(params, state)
        value = float(value)
        if previous - value < tol:
            break
        previous = value
    return params, value, done


def predict(kernel, params, t, y, new):
    cov = kernel(t, t, params) + (jnp.exp(2 * params["noise"]) + JITTER) * jnp.eye(len(t))
    chol = jax.scipy.linalg.cho_factor(cov, lower=True)
    cross = kernel(new, t, params)
    mean = cross @ jax.scipy.linalg.cho_solve(chol, y)
    return mean


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=380)
    parser.add_argument("--max-steps", type=int, default=160)
    parser.add_argument("--tol", type=float, default=0.02)
    args = parser.parse_args()
    t, y = make_series(args.points, seed=8)
    hold = (t > 8.5) & (t < 9.5)
    t_in, y_in = jax.device_put((t[~hold], y[~hold]))
    results = {}
    for name, (kernel, start) in KERNELS.items():
        began = time.perf_counter()
        params, value, steps = fit(kernel, start, t_in, y_in, args.max_steps, args.tol)
        mean = np.asarray(predict(kernel, params, t_in, y_in, jnp.asarray(t[hold])))
        error = np.sqrt(np.mean((mean - y[hold]) ** 2))
        results[name] = -value
        shown = ", ".join(f"{k} {float(jnp.exp(v)):.3f}" for k, v in sorted(params.items()))
        print(f"{name}: log evidence {-value:.1f} after {steps} steps ({time.perf_counter() - began:.1f} s); "
              f"gap error {error:.3f}\n    {shown}")
    best = max(results, key=results.get)
    print(f"preferred: {best}, by {results[best] - sorted(results.values())[-2]:.1f} nats over the next")


if __name__ == "__main__":
    main()
