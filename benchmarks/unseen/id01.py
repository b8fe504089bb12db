"""Molecular dynamics of a Lennard-Jones fluid (reduced units): equilibration with a
Berendsen thermostat, production run, then the self-diffusion coefficient from the
mean squared displacement and the velocity autocorrelation function."""
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class Fluid:
    n_side: int = 8
    density: float = 0.70
    temperature: float = 1.1
    cutoff: float = 2.2
    skin: float = 0.4
    dt: float = 0.004
    rebuild_every: int = 15

    @property
    def n(self):
        return self.n_side ** 3

    @property
    def box(self):
        return float((self.n / self.density) ** (1.0 / 3.0))


class State(NamedTuple):
    pos: jax.Array      # unwrapped coordinates
    vel: jax.Array
    force: jax.Array


def initial_state(fluid, seed):
    rng = np.random.default_rng(seed)
    grid = (np.arange(fluid.n_side) + 0.5) * fluid.box / fluid.n_side
    pos = np.stack(np.meshgrid(grid, grid, grid, indexing="ij"), -1).reshape(-1, 3)
    pos = pos + 0.02 * rng.standard_normal(pos.shape)
    vel = rng.standard_normal(pos.shape) * np.sqrt(fluid.temperature)
    vel -= vel.mean(0)
    return State(jnp.asarray(pos, jnp.float32), jnp.asarray(vel, jnp.float32),
                 jnp.zeros(pos.shape, jnp.float32))


def neighbour_pairs(pos, fluid):
    """Half list of all pairs within cutoff + skin."""
    pos = np.asarray(pos)
    delta = pos[:, None, :] - pos[None, :, :]
    delta -= fluid.box * np.round(delta / fluid.box)
    close = (delta ** 2).sum(-1) < (fluid.cutoff + fluid.skin) ** 2
    i, j = np.nonzero(np.triu(close, k=1))
    return np.stack([i, j]).astype(np.int32)


def forces(pos, pairs, fluid):
    i, j = pairs
    d = pos[i] - pos[j]
    d = d - fluid.box * jnp.round(d / fluid.box)
    r2 = jnp.sum(d * d, -1)
    inside = (r2 < fluid.cutoff ** 2) & (i != j)
    inv6 = (1.0 / jnp.where(inside, r2, 1.0)) ** 3
    energy = jnp.sum(jnp.where(inside, 4.0 * (inv6 * inv6 - inv6), 0.0))
    scale = jnp.where(inside, 24.0 * (2.0 * inv6 * inv6 - inv6) / jnp.where(inside, r2, 1.0), 0.0)
    pair_force = scale[:, None] * d
    f = jnp.zeros_like(pos).at[i].add(pair_force).at[j].add(-pair_force)
    return f, energy


@partial(jax.jit, static_argnames=("fluid", "thermostat"))
def advance(state, pairs, fluid, thermostat):
    """rebuild_every velocity-Verlet steps with one neighbour list."""
    def step(s, _):
        half = s.vel + 0.5 * fluid.dt * s.force
        pos = s.pos + fluid.dt * half
        force, energy = forces(pos, pairs, fluid)
        vel = half + 0.5 * fluid.dt * force
        temp = jnp.mean(vel ** 2)
        if thermostat:
            vel = vel * jnp.sqrt(1.0 + 0.05 * (fluid.temperature / temp - 1.0))
        return State(pos, vel, force), (energy / fluid.n, temp)
    return jax.lax.scan(step, state, None, length=fluid.rebuild_every)


def simulate(state, fluid, blocks, thermostat):
    positions, velocities, energies, temps = [], [], [], []
    for block in range(blocks):
        pairs = neighbour_pairs(state.pos, fluid)
        state, (energy, temp) = advance(state, pairs, fluid, thermostat)
        positions.append(state.pos)
        velocities.append(state.vel)
        energies.append(energy)
        temps.append(temp)
        if (block + 1) % 15 == 0:
            print(f"  block {block + 1:3d}: U/N {float(energy.mean()):.3f}  T {float(temp.mean()):.3f}")
    return state, jnp.stack(positions), jnp.stack(velocities), jnp.concatenate(temps)


def correlations(positions, velocities):
    """MSD and velocity autocorrelation for all lags up to two thirds of the run."""
    lags = 2 * len(positions) // 3
    msd, vacf = [], []
    for lag in range(1, lags):
        moved = positions[lag:] - positions[:-lag]
        msd.append(jnp.mean(jnp.sum(moved ** 2, axis=-1)))
        vacf.append(jnp.mean(jnp.sum(velocities[lag:] * velocities[:-lag], axis=-1)))
    return np.array(msd), np.array(vacf)


def main():
    fluid = Fluid()
    state = initial_state(fluid, seed=4)
    print(f"{fluid.n} atoms, box {fluid.box:.2f}")
    print("equilibration")
    state, *_ = simulate(state, fluid, 15, thermostat=True)
    print("production")
    state, positions, velocities, temps = simulate(state, fluid, 45, thermostat=False)
    msd, vacf = correlations(positions, velocities)
    lag_time = np.arange(1, len(msd) + 1) * fluid.dt * fluid.rebuild_every
    late = slice(len(msd) // 2, None)
    slope = np.polyfit(lag_time[late], msd[late], 1)[0]
    print(f"mean temperature {float(temps.mean()):.3f}, diffusion coefficient {slope / 6.0:.4f}")
    print("vacf", np.round(vacf[:6] / (3 * float(temps.mean())), 3))


if __name__ == "__main__":
    main()
