"""Receding-horizon control of a two-link crane: shooting MPC with a projected
gradient solver.  Plant = RK4 at 200 Hz with friction mismatch, controller at 20 Hz."""
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

HORIZON = 30
CTRL_DT = 0.05
U_MAX = 12.0


@dataclass(frozen=True)
class Crane:
    cart_mass: float = 4.0
    load_mass: float = 1.3
    hook_mass: float = 0.4
    rope: float = 1.1
    sling: float = 0.4
    friction: float = 0.6
    g: float = 9.81


def dynamics(crane, state, u):
    """state = [x, th1, th2, vx, w1, w2]"""
    x, a, b, v, wa, wb = state
    m1, m2 = crane.hook_mass, crane.load_mass
    l1, l2 = crane.rope, crane.sling
    mt = crane.cart_mass + m1 + m2
    m12 = m1 + m2
    mass = jnp.array([
        [mt, m12 * l1 * jnp.cos(a), m2 * l2 * jnp.cos(b)],
        [m12 * l1 * jnp.cos(a), m12 * l1 ** 2, m2 * l1 * l2 * jnp.cos(a - b)],
        [m2 * l2 * jnp.cos(b), m2 * l1 * l2 * jnp.cos(a - b), m2 * l2 ** 2],
    ])
    rhs = jnp.array([
        u - crane.friction * v + m12 * l1 * wa ** 2 * jnp.sin(a) + m2 * l2 * wb ** 2 * jnp.sin(b),
        -m2 * l1 * l2 * wb ** 2 * jnp.sin(a - b) - m12 * crane.g * l1 * jnp.sin(a) - 0.05 * wa,
        m2 * l1 * l2 * wa ** 2 * jnp.sin(a - b) - m2 * crane.g * l2 * jnp.sin(b) - 0.02 * wb,
    ])
    # 3x3 adjugate solve: cheaper than LAPACK for such a tiny system
    r0, r1, r2 = mass
    det = jnp.dot(r0, jnp.cross(r1, r2))
    inv_t = jnp.stack([jnp.cross(r1, r2), jnp.cross(r2, r0), jnp.cross(r0, r1)])
    acc = inv_t.T @ rhs / det
    return jnp.concatenate([jnp.array([v, wa, wb]), acc])


def rk4(crane, state, u, dt):
    k1 = dynamics(crane, state, u)
    k2 = dynamics(crane, state + 0.5 * dt * k1, u)
    k3 = dynamics(crane, state + 0.5 * dt * k2, u)
    k4 = dynamics(crane, state + dt * k3, u)
    return state + dt / 6.0 * (k1 + 2 * k2 + 2 * k3 + k4)


def horizon_cost(crane, u_seq, state, goal):
    def stage(s, u):
        s = rk4(crane, s, u, CTRL_DT)
        err = s - goal
        return s, jnp.sum(jnp.array([8.0, 4.0, 4.0, 0.4, 0.3, 0.1]) * err ** 2) + 2e-3 * u ** 2

    final, costs = jax.lax.scan(stage, state, u_seq)
    return costs.sum() + 40.0 * jnp.sum((final - goal)[:3] ** 2)


class ShootingMPC:
    def __init__(self, crane, iters=60, lr=0.35):
        self.crane, self.iters, self.lr = crane, iters, lr
        self.plan = jnp.zeros(HORIZON)

    def _descend(self, objective, u0):
        grad = jax.grad(objective)

        def body(carry, _):
            u, vel = carry
            g = grad(u)
            vel = 0.85 * vel - self.lr * g / (1e-3 + jnp.linalg.norm(g))
            return (jnp.clip(u + vel, -U_MAX, U_MAX), vel), None

        (u, _), _ = jax.lax.scan(body, (u0, jnp.zeros_like(u0)), None, length=self.iters)
        return u, objective(u)

    def command(self, state, goal):
        def objective(u):
            return horizon_cost(self.crane, u, state, goal)

        self.plan, value = self._descend(objective, self.plan)
        u = self.plan[0]
        self.plan = jnp.concatenate([self.plan[1:], self.plan[-1:]])
        return u, value


@jax.jit
def plant_step(state, u, key):
    true_crane = Crane(friction=0.85, load_mass=1.45)
    state = jax.lax.fori_loop(0, 10, lambda i, s: rk4(true_crane, s, u, CTRL_DT / 10), state)
    return state + 1e-3 * jax.random.normal(key, (6,))


def main():
    goals = [jnp.array([1.5, 0, 0, 0, 0, 0.0]), jnp.array([-0.5, 0, 0, 0, 0, 0.0])]
    mpc = ShootingMPC(Crane())
    state = jnp.zeros(6)
    key = jax.random.key(3)
    log = []
    for k in range(10):
        goal = goals[0] if k < 6 else goals[1]
        u, value = mpc.command(state, goal)
        key, sub = jax.random.split(key)
        state = plant_step(state, u, sub)
        log.append((state, u, value))
    track = np.array([np.asarray(s) for s, _, _ in log])
    effort = np.array([float(u) for _, u, _ in log])
    print("cart positions", np.round(track[::2, 0], 3))
    print("max sway [deg] %.2f   mean |u| %.2f" % (np.degrees(np.abs(track[:, 1]).max()), np.abs(effort).mean()))


if __name__ == "__main__":
    main()
