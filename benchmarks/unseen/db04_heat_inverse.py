"""Recover a conductivity field from sparse temperature sensors (adjoint through a solver)."""
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

N = 48
STEPS = 28
SUB = 2
DT = 0.12
EPOCHS = 100


def true_field():
    y, x = np.mgrid[0:N, 0:N] / N
    k = 0.4 + 0.5 * np.exp(-((x - 0.3) ** 2 + (y - 0.6) ** 2) / 0.02)
    return (k + 0.3 * (x > 0.6) * (y < 0.5)).astype(np.float32)


def laplace_flux(u, k):
    """Divergence of k grad u with insulated walls."""
    kx = 0.5 * (k[:, 1:] + k[:, :-1])
    ky = 0.5 * (k[1:, :] + k[:-1, :])
    fx = kx * (u[:, 1:] - u[:, :-1])
    fy = ky * (u[1:, :] - u[:-1, :])
    div = jnp.zeros_like(u)
    div = div.at[:, :-1].add(fx).at[:, 1:].add(-fx)
    return div.at[:-1, :].add(fy).at[1:, :].add(-fy)


def source(step):
    """A heater that moves along the diagonal."""
    pos = 0.1 + 0.8 * step / STEPS
    g = jnp.arange(N) / N
    return jnp.exp(-((g[:, None] - pos) ** 2 + (g[None, :] - pos) ** 2) / 0.003)


def simulate(k, sensors):
    u = jnp.zeros((N, N))
    readings = []
    for step in range(STEPS):
        q = source(step)
        for _ in range(SUB):
            u = u + DT * (laplace_flux(u, k) + q)
        readings.append(u[sensors[:, 0], sensors[:, 1]])
    return jnp.stack(readings)


def smoothness(k):
    return jnp.mean((k[1:] - k[:-1]) ** 2) + jnp.mean((k[:, 1:] - k[:, :-1]) ** 2)


def misfit(theta, sensors, observed):
    k = 0.05 + jax.nn.softplus(theta)
    pred = simulate(k, sensors)
    return jnp.mean((pred - observed) ** 2) + 0.02 * smoothness(k)


tx = optax.chain(optax.clip_by_global_norm(5.0), optax.adam(0.05))


@jax.jit
def step(theta, opt, sensors, observed):
    value, grads = jax.value_and_grad(misfit)(theta, sensors, observed)
    upd, opt = tx.update(grads, opt)
    return optax.apply_updates(theta, upd), opt, value


def main():
    rng = np.random.default_rng(5)
    sensors = jnp.asarray(rng.integers(0, N, (80, 2)))
    k_true = jnp.asarray(true_field())
    observed = jax.jit(simulate)(k_true, sensors)
    observed = observed + 0.01 * jnp.asarray(rng.normal(size=observed.shape), jnp.float32)

    theta = jnp.full((N, N), 0.0)
    opt = tx.init(theta)
    start = time.perf_counter()
    for epoch in range(EPOCHS):
        theta, opt, value = step(theta, opt, sensors, observed)
        if epoch % 20 == 19:
            k = 0.05 + jax.nn.softplus(theta)
            err = float(jnp.sqrt(jnp.mean((k - k_true) ** 2)))
            print(f"epoch {epoch + 1:3d}  misfit {float(value):.5f}  rms error {err:.4f}  {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
