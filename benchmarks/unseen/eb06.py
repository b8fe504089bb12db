"""Shallow-water equations on a periodic plane: a breaking dam and its gauges.

Rusanov fluxes with MUSCL reconstruction, Heun in time and a time step from the
CFL condition.  Mass must be conserved, which is checked while running.
"""
import jax
import jax.numpy as jnp
import numpy as np

G = 9.81


class ShallowWater:
    def __init__(self, n=128, length=100.0, cfl=0.4, manning=0.02):
        self.n, self.dx, self.cfl, self.manning = n, length / n, cfl, manning
        self.x = (jnp.arange(n) + 0.5) * self.dx
        self.step = jax.jit(self._step)

    def dam(self):
        xx, yy = jnp.meshgrid(self.x, self.x, indexing="ij")
        r = jnp.hypot(xx - 40.0, yy - 55.0)
        h = jnp.where(r < 12.0, 3.0, 1.0)
        return jnp.stack([h, jnp.zeros_like(h), jnp.zeros_like(h)])

    @staticmethod
    def limiter(a, b):
        return jnp.where(a * b > 0, jnp.sign(a) * jnp.minimum(jnp.abs(a), jnp.abs(b)), 0.0)

    def flux(self, q, axis):
        h, un = jnp.maximum(q[0], 1e-6), q[1 + axis] / jnp.maximum(q[0], 1e-6)
        f = q * un
        return f.at[1 + axis].add(0.5 * G * h ** 2), jnp.abs(un) + jnp.sqrt(G * h)

    def divergence(self, q, axis):
        ax = axis + 1
        ahead, behind = jnp.roll(q, -1, ax), jnp.roll(q, 1, ax)
        slope = self.limiter(ahead - q, q - behind)
        left, right = q + 0.5 * slope, jnp.roll(q - 0.5 * slope, -1, ax)
        fl, cl = self.flux(left, axis)
        fr, cr = self.flux(right, axis)
        face = 0.5 * (fl + fr) - 0.5 * jnp.maximum(cl, cr) * (right - left)
        return (face - jnp.roll(face, 1, ax)) / self.dx

    def rhs(self, q):
        speed = jnp.hypot(q[1], q[2]) / jnp.maximum(q[0], 1e-6)
        drag = G * self.manning ** 2 * speed / jnp.maximum(q[0], 1e-6) ** (4 / 3)
        source = jnp.stack([jnp.zeros_like(drag), -drag * q[1], -drag * q[2]])
        return -self.divergence(q, 0) - self.divergence(q, 1) + source

    def _step(self, q, dt):
        q1 = q + dt * self.rhs(q)
        return 0.5 * (q + q1 + dt * self.rhs(q1))

    def time_step(self, q):
        h = jnp.maximum(q[0], 1e-6)
        c = jnp.sqrt(G * h)
        fastest = jnp.maximum(jnp.abs(q[1] / h) + c, jnp.abs(q[2] / h) + c).max()
        return self.cfl * self.dx / fastest

    def energy(self, q):
        h = jnp.maximum(q[0], 1e-6)
        kinetic = 0.5 * (q[1] ** 2 + q[2] ** 2) / h
        return (kinetic + 0.5 * G * h ** 2).sum() * self.dx ** 2


class Gauges:
    """Water levels at fixed points, interpolated bilinearly."""

    def __init__(self, model, points):
        p = np.asarray(points, np.float32) / model.dx - 0.5
        self.i = jnp.asarray(np.floor(p).astype(np.int32))
        self.w = jnp.asarray(p - np.floor(p))
        self.n, self.times, self.levels = model.n, [], []

    def read(self, t, h):
        i0, j0 = self.i[:, 0] % self.n, self.i[:, 1] % self.n
        i1, j1 = (i0 + 1) % self.n, (j0 + 1) % self.n
        wx, wy = self.w[:, 0], self.w[:, 1]
        level = ((1 - wx) * (1 - wy) * h[i0, j0] + wx * (1 - wy) * h[i1, j0]
                 + (1 - wx) * wy * h[i0, j1] + wx * wy * h[i1, j1])
        self.times.append(t)
        self.levels.append(level)

    def summary(self):
        levels = np.stack([np.asarray(v) for v in self.levels])
        t = np.asarray(self.times)
        return levels.max(0), t[levels.argmax(0)]


def run(t_end=36.0):
    model = ShallowWater()
    q = model.dam()
    gauges = Gauges(model, [(60, 55), (75, 55), (90, 20), (15, 80), (50, 95), (5, 5)])
    mass0 = q[0].sum()
    t, steps, next_print = 0.0, 0, 6.0
    while t < t_end:
        dt = model.time_step(q)
        q = model.step(q, dt)
        t += float(dt)
        steps += 1
        gauges.read(t, q[0])
        if t >= next_print:
            drift = float(jnp.abs(q[0].sum() / mass0 - 1))
            print(f"t {t:6.2f}  steps {steps:5d}  energy {float(model.energy(q)):.1f}  "
                  f"h [{float(q[0].min()):.3f}, {float(q[0].max()):.3f}]  drift {drift:.1e}")
            next_print += 6.0
    return gauges, steps


if __name__ == "__main__":
    gauges, steps = run()
    top, when = gauges.summary()
    print(f"{steps} steps; crest at the gauges:")
    for k, (h, t) in enumerate(zip(top, when)):
        print(f"  gauge {k}: {h:.3f} m at {t:.2f} s")
