"""Lennard-Jones liquid: melt a lattice, measure g(r) and the diffusion constant.

Neighbour lists are built on the device with a fixed capacity, enlarged to the
next multiple of 16 when the densest particle does not fit.
"""
import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class Settings:
    cells: int = 6                  # fcc cells per edge: 4 * 6**3 atoms
    density: float = 0.80
    temperature: float = 1.2
    dt: float = 0.004
    r_cut: float = 2.5
    skin: float = 0.4
    steps_per_block: int = 10       # list rebuilt between blocks
    equil_blocks: int = 60
    prod_blocks: int = 150

    n = property(lambda self: 4 * self.cells ** 3)
    box = property(lambda self: (self.n / self.density) ** (1.0 / 3.0))


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class State:
    pos: jax.Array
    vel: jax.Array
    travelled: jax.Array            # unwrapped displacement


def fcc(s):
    base = np.array([[0, 0, 0], [0, .5, .5], [.5, 0, .5], [.5, .5, 0]])
    grid = np.stack(np.meshgrid(*[np.arange(s.cells)] * 3, indexing="ij"), -1).reshape(-1, 1, 3)
    return ((grid + base).reshape(-1, 3) * s.box / s.cells).astype(np.float32)


def displacement(a, b, box):
    d = a - b
    return d - box * jnp.round(d / box)


@partial(jax.jit, static_argnames=("s", "capacity"))
def build_list(pos, s, capacity):
    d = displacement(pos[:, None], pos[None], s.box)
    r2 = jnp.sum(d * d, -1) + jnp.eye(s.n) * 1e9
    inside = r2 < (s.r_cut + s.skin) ** 2
    valid, idx = jax.lax.top_k(inside.astype(jnp.float32), capacity)
    return idx, valid > 0, inside.sum(1).max()


def forces(pos, idx, valid, s):
    d = displacement(pos[:, None], pos[idx], s.box)
    r2 = jnp.where(valid, jnp.sum(d * d, -1), 1e6)
    inv6 = jnp.where(r2 < s.r_cut ** 2, 1.0 / r2 ** 3, 0.0)
    pair = 4.0 * (inv6 ** 2 - inv6)
    f = jnp.sum((24.0 * (2.0 * inv6 ** 2 - inv6) / r2)[..., None] * d, axis=1)
    return f, 0.5 * pair.sum()


@partial(jax.jit, static_argnames=("s", "thermostat"))
def run_block(state, idx, valid, s, thermostat):
    def step(_, carry):
        st, f = carry
        vel = st.vel + 0.5 * s.dt * f
        pos = (st.pos + s.dt * vel) % s.box
        f, _ = forces(pos, idx, valid, s)
        return State(pos, vel + 0.5 * s.dt * f, st.travelled + s.dt * vel), f

    start = (state, forces(state.pos, idx, valid, s)[0])
    state, _ = jax.lax.fori_loop(0, s.steps_per_block, step, start)
    kinetic = 0.5 * jnp.sum(state.vel ** 2)
    temp = 2.0 * kinetic / (3.0 * s.n)
    if thermostat:
        state = dataclasses.replace(state, vel=state.vel * jnp.sqrt(s.temperature / temp))
    _, potential = forces(state.pos, idx, valid, s)
    return state, jnp.stack([temp, potential / s.n, (kinetic + potential) / s.n])


@partial(jax.jit, static_argnames=("s", "bins"))
def pair_histogram(pos, s, bins=60):
    d = displacement(pos[:, None], pos[None], s.box)
    r = jnp.sqrt(jnp.sum(d * d, -1) + jnp.eye(s.n) * 1e6).ravel()
    return jnp.histogram(r, bins=bins, range=(0.0, s.box / 2))[0]


class Simulation:
    def __init__(self, s, key):
        self.s, self.capacity = s, 64
        pos = jnp.asarray(fcc(s))
        vel = jnp.sqrt(s.temperature) * jax.random.normal(key, pos.shape)
        self.state = State(pos, vel - vel.mean(0), jnp.zeros_like(pos))

    def block(self, thermostat):
        idx, valid, most = build_list(self.state.pos, self.s, self.capacity)
        if int(most) > self.capacity:              # silent overflow would be wrong physics
            self.capacity = 16 * (int(most) // 16 + 1)
            print(f"  neighbour capacity -> {self.capacity}")
            return self.block(thermostat)
        self.state, obs = run_block(self.state, idx, valid, self.s, thermostat)
        return obs


def main():
    s = Settings()
    sim = Simulation(s, jax.random.key(2))
    for b in range(s.equil_blocks):
        obs = sim.block(thermostat=True)
    print(f"{s.n} atoms, equilibrated: T {float(obs[0]):.3f}  U/N {float(obs[1]):.3f}")
    sim.state = dataclasses.replace(sim.state, travelled=jnp.zeros_like(sim.state.pos))
    log, hist = [], 0
    for b in range(s.prod_blocks):
        log.append(sim.block(thermostat=False))
        if b % 10 == 9:
            hist = hist + pair_histogram(sim.state.pos, s)
    log, hist = np.asarray(jnp.stack(log)), np.asarray(hist)
    edges = np.linspace(0, s.box / 2, hist.size + 1)
    shell = 4 / 3 * np.pi * np.diff(edges ** 3) * s.density * s.n * (s.prod_blocks // 10)
    g = hist / shell
    msd = float(jnp.mean(jnp.sum(sim.state.travelled ** 2, -1)))
    time = s.prod_blocks * s.steps_per_block * s.dt
    print(f"mean T {log[:, 0].mean():.3f}  mean U/N {log[:, 1].mean():.3f}  "
          f"energy drift {log[-1, 2] - log[0, 2]:+.4f}")
    print(f"first peak of g(r): {g.max():.2f} at r = {edges[g.argmax()]:.2f};  D = {msd / 6 / time:.4f}")


if __name__ == "__main__":
    main()
