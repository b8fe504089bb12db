"""Population pharmacokinetics: two-compartment model, Levenberg-Marquardt for every patient at once."""
import sys

import jax
import jax.numpy as jnp
import numpy as np

PATIENTS = 96
STEPS = 96                      # integration steps, a quarter of an hour each
DT = 0.25
DOSE = 100.0
TRUE = np.log(np.array([1.2, 5.0, 20.0, 3.0]))       # ka, CL, V, Q
MAX_ITER = 40


def derivative(y, theta):
    ka, cl, v, q = jnp.exp(theta)
    gut, central, peripheral = y
    saturable = cl / v * central / (1.0 + 0.05 * central / v)
    flow = q / v * central - q / 30.0 * peripheral
    return jnp.stack([-ka * gut, ka * gut - saturable - flow, flow])


def rk4(y, theta):
    k1 = derivative(y, theta)
    k2 = derivative(y + 0.5 * DT * k1, theta)
    k3 = derivative(y + 0.5 * DT * k2, theta)
    k4 = derivative(y + DT * k3, theta)
    return y + DT / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def concentration(theta):
    """Central concentration after each step."""
    def advance(y, _):
        y = rk4(y, theta)
        return y, y[1]

    _, central = jax.lax.scan(advance, jnp.array([DOSE, 0.0, 0.0]), None, length=STEPS)
    return central / jnp.exp(theta[2])


def residual(theta, observed):
    prior = (theta - TRUE) / 0.8
    return jnp.concatenate([(concentration(theta) - observed) / 0.15, prior])


def lm_step(theta, damping, observed):
    r = residual(theta, observed)
    jac = jax.jacrev(residual)(theta, observed)
    normal = jac.T @ jac
    step = jnp.linalg.solve(normal + damping * jnp.diag(jnp.diag(normal)), jac.T @ r)
    proposal = theta - jnp.clip(step, -1.0, 1.0)
    old, new = jnp.sum(r ** 2), jnp.sum(residual(proposal, observed) ** 2)
    better = new < old
    theta = jnp.where(better, proposal, theta)
    damping = jnp.where(better, damping * 0.4, damping * 4.0)
    return theta, jnp.clip(damping, 1e-6, 1e6), jnp.minimum(old, new)


def simulate(rng):
    theta = TRUE + rng.normal(0, 0.3, (PATIENTS, 4))
    clean = np.asarray(jax.jit(jax.vmap(concentration))(jnp.asarray(theta, jnp.float32)))
    return theta, (clean + rng.normal(0, 0.15, clean.shape)).astype(np.float32)


def fit(observed, start, max_iter=MAX_ITER, tol=1e-5):
    step = jax.jit(jax.vmap(lm_step))
    theta = jnp.tile(start, (len(observed), 1))
    damping = jnp.full(len(observed), 1e-2)
    observed = jnp.asarray(observed)
    previous = np.inf
    for it in range(max_iter):
        theta, damping, cost = step(theta, damping, observed)
        if it % 10 == 9:
            total = float(cost.sum())
            print(f"  iteration {it + 1:3d}: objective {total:.2f}")
            if previous - total < tol * total:
                break
            previous = total
    return np.asarray(theta), np.asarray(cost)


def bootstrap(observed, theta, rng, rounds=2):
    """Parametric bootstrap of the population means."""
    means = []
    predict = np.asarray(observed)
    for _ in range(rounds):
        pick = rng.integers(0, PATIENTS, PATIENTS)
        again, _ = refit(jnp.asarray(theta[pick]), jnp.asarray(predict[pick]))
        means.append(np.asarray(again).mean(0))
    return np.std(means, axis=0)


@jax.jit
def refit(theta, observed):
    def body(_, carry):
        theta, damping = carry
        theta, damping, _ = jax.vmap(lm_step)(theta, damping, observed)
        return theta, damping

    theta, damping = jax.lax.fori_loop(0, 12, body, (theta, jnp.full(PATIENTS, 1e-2)))
    return theta, damping


def main():
    rng = np.random.default_rng(5)
    truth, observed = simulate(rng)
    theta, cost = fit(observed, jnp.asarray(TRUE + np.array([0.5, -0.4, 0.3, 0.4]), jnp.float32))
    error = np.abs(theta - truth).mean(0)
    for name, mean, err in zip(("ka", "CL", "V", "Q"), np.exp(theta.mean(0)), error):
        print(f"{name:>3}: population {mean:7.3f}   mean abs error of log {err:.3f}")
    print(f"reduced chi-square {cost.sum() / (PATIENTS * (STEPS - 4)):.3f}")
    print("bootstrap s.e. of the means:", np.round(bootstrap(observed, theta, rng), 4))
    return 0


if __name__ == "__main__":
    sys.exit(main())
