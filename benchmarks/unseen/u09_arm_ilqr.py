"""iLQR for a two-link arm: reaching movements at two levels of model detail (plain jax)."""
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

HORIZONS = (30, 60)          # short and long reaches, both planned all day
DT = 0.04
N_TARGETS = 60
ITERATIONS = 15
LOG_EVERY = 20
MASS, LENGTH, FRICTION = (1.0, 0.8), (0.5, 0.4), 0.3
STATE, CONTROL = 4, 2


def accelerations(q, dq, torque, with_coriolis):
    m1, m2 = MASS
    l1, l2 = LENGTH
    c2 = jnp.cos(q[1])
    a = (m1 + m2) * l1 ** 2 + m2 * l2 ** 2 + 2 * m2 * l1 * l2 * c2
    b = m2 * l2 ** 2 + m2 * l1 * l2 * c2
    d = m2 * l2 ** 2
    force = torque - FRICTION * dq
    if with_coriolis:
        h = m2 * l1 * l2 * jnp.sin(q[1])
        force = force - jnp.stack([-h * dq[1] * (2 * dq[0] + dq[1]), h * dq[0] ** 2])
    det = a * d - b * b
    return jnp.stack([d * force[0] - b * force[1], a * force[1] - b * force[0]]) / det


def step(x, u, with_coriolis):
    q, dq = x[:2], x[2:]
    dq = dq + DT * accelerations(q, dq, u, with_coriolis)
    return jnp.concatenate([q + DT * dq, dq])


def hand(x):
    return jnp.stack([LENGTH[0] * jnp.cos(x[0]) + LENGTH[1] * jnp.cos(x[0] + x[1]),
                      LENGTH[0] * jnp.sin(x[0]) + LENGTH[1] * jnp.sin(x[0] + x[1])])


def stage_cost(x, u, target):
    return 0.05 * jnp.sum((hand(x) - target) ** 2) + 1e-3 * jnp.sum(u ** 2)


def final_cost(x, target):
    return 40.0 * jnp.sum((hand(x) - target) ** 2) + 0.5 * jnp.sum(x[2:] ** 2)


def simulate(x0, us, ks, gains, xs_ref, alpha, target, with_coriolis):
    def body(x, inputs):
        u, k, gain, ref = inputs
        u = u + alpha * k + gain @ (x - ref)
        return step(x, u, with_coriolis), (x, u, stage_cost(x, u, target))

    last, (xs, us, costs) = jax.lax.scan(body, x0, (us, ks, gains, xs_ref))
    return xs, us, last, costs.sum() + final_cost(last, target)


def backward(xs, us, last, target, with_coriolis):
    fx, fu = jax.vmap(jax.jacfwd(partial(step, with_coriolis=with_coriolis), (0, 1)))(xs, us)
    lx, lu = jax.vmap(jax.grad(stage_cost, (0, 1)), (0, 0, None))(xs, us, target)
    lxx = jax.vmap(jax.hessian(stage_cost), (0, 0, None))(xs, us, target)
    vx, vxx = jax.grad(final_cost)(last, target), jax.hessian(final_cost)(last, target)

    def body(carry, inputs):
        vx, vxx = carry
        a, b, qx, qu, qxx = inputs
        qx, qu = qx + a.T @ vx, qu + b.T @ vx
        qxx, qux = qxx + a.T @ vxx @ a, b.T @ vxx @ a
        quu = 2e-3 * jnp.eye(CONTROL) + b.T @ vxx @ b + 1e-3 * jnp.eye(CONTROL)
        inv = jnp.linalg.inv(quu)
        k, gain = -inv @ qu, -inv @ qux
        return (qx + gain.T @ qu, qxx + gain.T @ qux), (k, gain)

    _, (ks, gains) = jax.lax.scan(body, (vx, vxx), (fx, fu, lx, lu, lxx), reverse=True)
    return ks, gains


@partial(jax.jit, static_argnames=("horizon", "with_coriolis"))
def plan(x0, target, horizon, with_coriolis):
    alphas = 0.5 ** jnp.arange(6.0)
    zeros = jnp.zeros((horizon, CONTROL)), jnp.zeros((horizon, CONTROL, STATE)), jnp.zeros((horizon, STATE))
    start = simulate(x0, zeros[0], *zeros, 0.0, target, with_coriolis)

    def iterate(carry, _):
        xs, us, last, cost = carry
        ks, gains = backward(xs, us, last, target, with_coriolis)
        tries = jax.vmap(lambda al: simulate(x0, us, ks, gains, xs, al, target, with_coriolis))(alphas)
        best = jnp.nanargmin(tries[3])
        candidate = jax.tree.map(lambda a: a[best], tries)
        better = candidate[3] < cost
        return jax.tree.map(lambda n, o: jnp.where(better, n, o), candidate, carry), None

    (xs, us, last, cost), _ = jax.lax.scan(iterate, start, None, length=ITERATIONS)
    return us, hand(last), cost


def main():
    rng = np.random.default_rng(6)
    x0 = np.array([0.4, 1.2, 0.0, 0.0], np.float32)
    for horizon in HORIZONS:                       # every reach of the day is one of these
        for detail in (False, True):
            plan(x0, np.zeros(2, np.float32), horizon, detail)
    t0 = time.perf_counter()
    misses = []
    for n in range(1, N_TARGETS * 10 + 1):
        radius, angle = rng.uniform(0.3, 0.8), rng.uniform(0, 2 * np.pi)
        target = np.array([radius * np.cos(angle), radius * np.sin(angle)], np.float32)
        horizon = HORIZONS[int(abs(angle - 1.2) > 1.5)]
        _, reached, _ = plan(x0, target, horizon, n % 2 == 0)
        misses.append((reached, target))
        if n % (LOG_EVERY * 5) == 0:
            gap = np.mean([np.linalg.norm(np.asarray(r) - t) for r, t in misses])
            print(f"{n} reaches, mean miss {gap:.3f} m, {n / (time.perf_counter() - t0):.1f} plans/s")
            misses.clear()


if __name__ == "__main__":
    main()
