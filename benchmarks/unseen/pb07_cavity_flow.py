"""Lid-driven cavity, projection method on a collocated grid; writes drag and centre-line profiles."""
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np


class Grid:
    def __init__(self, n, length=1.0):
        self.n = n
        self.dx = length / (n - 1)
        self.x = np.linspace(0, length, n)

    def __hash__(self):
        return hash((self.n, self.dx))

    def __eq__(self, other):
        return isinstance(other, Grid) and (self.n, self.dx) == (other.n, other.dx)


def ddx(f, dx):
    return (f[1:-1, 2:] - f[1:-1, :-2]) / (2 * dx)


def ddy(f, dx):
    return (f[2:, 1:-1] - f[:-2, 1:-1]) / (2 * dx)


def laplace(f, dx):
    return (f[1:-1, 2:] + f[1:-1, :-2] + f[2:, 1:-1] + f[:-2, 1:-1] - 4 * f[1:-1, 1:-1]) / dx ** 2


def walls(u, v, lid):
    u = u.at[0, :].set(0).at[:, 0].set(0).at[:, -1].set(0).at[-1, :].set(lid)
    v = v.at[0, :].set(0).at[:, 0].set(0).at[:, -1].set(0).at[-1, :].set(0)
    return u, v


@functools.partial(jax.jit, static_argnums=0)
def predict(grid, u, v, dt, nu, lid):
    c = (slice(1, -1), slice(1, -1))
    du = -u[c] * ddx(u, grid.dx) - v[c] * ddy(u, grid.dx) + nu * laplace(u, grid.dx)
    dv = -u[c] * ddx(v, grid.dx) - v[c] * ddy(v, grid.dx) + nu * laplace(v, grid.dx)
    u, v = walls(u.at[c].add(dt * du), v.at[c].add(dt * dv), lid)
    rhs = jnp.zeros_like(u).at[c].set((ddx(u, grid.dx) + ddy(v, grid.dx)) / dt)
    return u, v, rhs - rhs[c].mean()


@functools.partial(jax.jit, static_argnums=0)
def relax(grid, p, rhs):
    c = (slice(1, -1), slice(1, -1))
    jacobi = 0.25 * (p[1:-1, 2:] + p[1:-1, :-2] + p[2:, 1:-1] + p[:-2, 1:-1] - grid.dx ** 2 * rhs[c])
    new = p.at[c].set(jacobi)
    new = new.at[:, 0].set(new[:, 1]).at[:, -1].set(new[:, -2])
    new = new.at[0, :].set(new[1, :]).at[-1, :].set(new[-2, :])
    return new, jnp.abs(new - p).max()


@functools.partial(jax.jit, static_argnums=0)
def project(grid, u, v, p, dt, lid):
    c = (slice(1, -1), slice(1, -1))
    u = u.at[c].add(-dt * ddx(p, grid.dx))
    v = v.at[c].add(-dt * ddy(p, grid.dx))
    return walls(u, v, lid)


class Pressure:
    def __init__(self, grid, tol, limit):
        self.grid, self.tol, self.limit = grid, tol, limit
        self.p = jnp.zeros((grid.n, grid.n))
        self.sweeps = []

    def solve(self, rhs):
        change, k = np.inf, 0
        while change > self.tol and k < self.limit:
            self.p, delta = relax(self.grid, self.p, rhs)
            change = float(delta)
            k += 1
        self.sweeps.append(k)
        return self.p


class Cavity:
    def __init__(self, n=41, reynolds=100.0, dt=1e-3):
        self.grid = Grid(n)
        self.nu, self.dt, self.lid = np.float32(1.0 / reynolds), np.float32(dt), np.float32(1.0)
        self.u, self.v = walls(jnp.zeros((n, n)), jnp.zeros((n, n)), self.lid)
        self.pressure = Pressure(self.grid, 2e-5, 400)

    def step(self):
        u, v, rhs = predict(self.grid, self.u, self.v, self.dt, self.nu, self.lid)
        p = self.pressure.solve(rhs)
        self.u, self.v = project(self.grid, u, v, p, self.dt, self.lid)

    def report(self):
        u = np.asarray(self.u)
        drag = self.nu * ((u[-1] - u[-2]) / self.grid.dx).mean()
        return drag, u[:, self.grid.n // 2]


def main():
    sim = Cavity()
    began = time.time()
    for i in range(1, 121):
        sim.step()
        if i % 40 == 0:
            drag, line = sim.report()
            print(f"t={i * sim.dt:.3f} drag {drag:.4f} min u {line.min():.4f} "
                  f"sweeps {np.mean(sim.pressure.sweeps[-40:]):.1f} {time.time() - began:.1f}s", flush=True)


if __name__ == "__main__":
    main()
