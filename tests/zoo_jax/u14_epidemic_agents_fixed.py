"""Agent-based epidemic on a contact grid with a neural behaviour model (equinox)."""
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

AGENTS = 1000
DAYS = 120
CONTACTS = 6
SUSCEPTIBLE, EXPOSED, INFECTIOUS, RECOVERED = range(4)


class Behaviour(eqx.Module):
    """Probability that an agent keeps its contacts today."""

    net: eqx.nn.MLP

    def __init__(self, key):
        self.net = eqx.nn.MLP(3, 1, width_size=16, depth=1, key=key)

    def __call__(self, age, risk, prevalence):
        x = jnp.stack([age, risk, prevalence * 20])
        return jax.nn.sigmoid(1.5 + self.net(x)[0])


class Population(eqx.Module):
    state: jax.Array
    age: jax.Array
    risk: jax.Array
    neighbours: jax.Array

    @classmethod
    def synthesise(cls, seed):
        rng = np.random.default_rng(seed)
        state = np.zeros(AGENTS, np.int32)
        state[rng.choice(AGENTS, 10, replace=False)] = INFECTIOUS
        near = (np.arange(AGENTS)[:, None] + rng.integers(-30, 31, (AGENTS, CONTACTS))) % AGENTS
        far = rng.integers(0, AGENTS, (AGENTS, CONTACTS))
        neighbours = np.where(rng.uniform(size=near.shape) < 0.9, near, far)
        return cls(jnp.asarray(state), jnp.asarray(rng.uniform(0, 1, AGENTS), jnp.float32),
                   jnp.asarray(rng.beta(2, 5, AGENTS), jnp.float32), jnp.asarray(neighbours))


@eqx.filter_jit
def advance(population, behaviour, key):
    k1, k2, k3, k4 = jax.random.split(key, 4)
    state = population.state
    prevalence = jnp.mean(state == INFECTIOUS)
    keeps = jax.vmap(behaviour, (0, 0, None))(population.age, population.risk, prevalence)
    out = jax.random.bernoulli(k1, keeps)
    exposure = jnp.sum((state[population.neighbours] == INFECTIOUS) & out[population.neighbours], axis=1)
    p_infect = out * (1 - 0.92 ** exposure)
    draws = [jax.random.uniform(k, (AGENTS,)) for k in (k2, k3, k4)]
    new = jnp.where((state == SUSCEPTIBLE) & (draws[0] < p_infect), EXPOSED, state)
    new = jnp.where((state == EXPOSED) & (draws[1] < 0.25), INFECTIOUS, new)
    new = jnp.where((state == INFECTIOUS) & (draws[2] < 0.12), RECOVERED, new)
    counts = jnp.bincount(new, length=4)
    return eqx.tree_at(lambda p: p.state, population, new), counts


@jax.jit
def reproduction_number(curve, day):
    """Growth of the infectious share, smoothed over the whole history."""
    infectious = curve[:, INFECTIOUS] / AGENTS
    lags = day - jnp.arange(infectious.shape[0])
    known = lags >= 0
    weights = jnp.where(known, jnp.exp(-lags / 5.0), 0.0)
    level = jnp.sum(weights * infectious) / jnp.sum(weights)
    slope = jnp.sum(weights * (infectious - level) * (day / 2 - lags)) / jnp.sum(weights)
    return 1.0 + slope / (level + 1e-6)


@jax.jit
def recorded(curve, counts, day):
    curve = curve.at[day].set(counts)
    return curve, reproduction_number(curve, day)


def simulate(population, behaviour, key, days):
    curve = jnp.zeros((days + 1, 4), jnp.int32).at[0].set(jnp.bincount(population.state, length=4))
    numbers = []
    for day in range(days):
        population, counts = advance(population, behaviour, jax.random.fold_in(key, day))
        curve, number = recorded(curve, counts, day + 1)
        numbers.append(number)
    return np.asarray(curve), np.stack(jax.device_get(numbers))


def report(curve, numbers, every=20):
    for day in range(0, len(numbers), every):
        s, e, i, r = curve[day]
        print(f"day {day:3d} S {s:5d} E {e:4d} I {i:4d} R {r:5d} growth {numbers[day]:.2f}")
    print(f"peak {curve[:, INFECTIOUS].max()} on day {curve[:, INFECTIOUS].argmax()}")


def main():
    t0 = time.perf_counter()
    behaviour = Behaviour(jax.random.key(3))
    population = Population.synthesise(seed=7)
    curve, numbers = simulate(population, behaviour, jax.random.key(9), DAYS)
    report(curve, numbers)
    print(f"{time.perf_counter() - t0:.1f}s")


if __name__ == "__main__":
    main()
