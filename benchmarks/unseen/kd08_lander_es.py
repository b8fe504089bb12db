"""Evolution strategies for a 2-D rocket lander: population of MLP policies in equinox, simulated with lax.scan.

Each generation: perturb, roll out, rank, update the mean by optax. Wind is redrawn per generation.
"""
import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import optax

POP = 64
FLIGHT = 480
DT = 0.04
GENERATIONS = 450


class Pilot(eqx.Module):
    mlp: eqx.nn.MLP

    def __init__(self, key):
        self.mlp = eqx.nn.MLP(6, 2, 24, 2, activation=jnp.tanh, key=key)

    def __call__(self, s):
        return jnp.tanh(self.mlp(s))


def dynamics(s, u, gust):
    x, y, vx, vy, th, om = s
    thrust = 6.0 * (u[0] + 1.0)
    ax = -thrust * jnp.sin(th) + gust
    ay = thrust * jnp.cos(th) - 9.8
    return s + DT * jnp.stack([vx, vy, ax, ay, om, 3.0 * u[1] - 0.5 * om])


def flight_cost(pilot, start, gusts):
    def tick(carry, gust):
        s, alive = carry
        nxt = dynamics(s, pilot(s * jnp.array([0.1, 0.1, 0.2, 0.2, 1.0, 1.0])), gust)
        s = jnp.where(alive, nxt, s)
        return (s, alive & (s[1] > 0)), alive

    (s, _), alive = jax.lax.scan(tick, (start, jnp.array(True)), gusts)
    speed = jnp.hypot(s[2], s[3])
    return 0.2 * jnp.abs(s[0]) + speed + 2.0 * jnp.abs(s[4]) + 0.1 * s[1] + 0.002 * alive.sum()


class WindTunnel:
    """Draws correlated gust series from a Gaussian process with a Matern kernel."""

    def __init__(self, length, scale):
        self.t = jnp.arange(length) * DT
        self.scale = scale

    def covariance(self):
        d = jnp.abs(self.t[:, None] - self.t[None]) / self.scale
        return 2.0 * (1 + jnp.sqrt(3.0) * d) * jnp.exp(-jnp.sqrt(3.0) * d) + 1e-4 * jnp.eye(len(self.t))

    def draw(self, key, n):
        return jax.random.multivariate_normal(key, jnp.zeros(len(self.t)), self.covariance(), (n,), method="svd")


def centred_ranks(cost):
    order = jnp.argsort(jnp.argsort(cost))
    return order / (len(cost) - 1) - 0.5


class Strategy:
    def __init__(self, pilot, sigma, lr):
        arrays, self.static = eqx.partition(pilot, eqx.is_array)
        self.mean, self.unravel = jax.flatten_util.ravel_pytree(arrays)
        self.sigma = sigma
        self.tx = optax.adam(lr)
        self.opt_state = self.tx.init(self.mean)
        self._evaluate = jax.jit(self._population_cost)
        self._tell = jax.jit(self._step)

    def _population_cost(self, mean, eps, starts, gusts):
        def one(e):
            pilot = eqx.combine(self.unravel(mean + self.sigma * e), self.static)
            return jax.vmap(lambda s, g: flight_cost(pilot, s, g))(starts, gusts).mean()

        return jax.vmap(one)(eps)

    def _step(self, mean, opt_state, eps, cost):
        grad = (centred_ranks(cost)[:, None] * eps).mean(0) / self.sigma
        updates, opt_state = self.tx.update(grad, opt_state)
        return optax.apply_updates(mean, updates), opt_state

    def generation(self, key, starts, gusts):
        half = jax.random.normal(key, (POP // 2, len(self.mean)))
        eps = jnp.concatenate([half, -half])
        cost = self._evaluate(self.mean, eps, starts, gusts)
        self.mean, self.opt_state = self._tell(self.mean, self.opt_state, eps, cost)
        return cost.mean()


def main():
    strategy = Strategy(Pilot(jax.random.key(0)), sigma=0.1, lr=0.03)
    wind = WindTunnel(FLIGHT, scale=0.6)
    key = jax.random.key(1)
    history = []
    for gen in range(GENERATIONS):
        key, k1, k2, k3 = jax.random.split(key, 4)
        starts = jnp.array([0.0, 10.0, 0, 0, 0, 0]) + jax.random.normal(k1, (4, 6)) * jnp.array([3, 1, 1, 1, 0.2, 0.1])
        gusts = wind.draw(k2, 4)
        history.append(strategy.generation(k3, starts, gusts))
        if gen % 150 == 149:
            print(f"generation {gen + 1}: mean cost {float(history[-1]):.2f}")
    curve = np.asarray(jnp.stack(history))
    print(f"best generation {curve.argmin()} at {curve.min():.2f}")


if __name__ == "__main__":
    main()
