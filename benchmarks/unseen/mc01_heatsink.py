"""Topology optimisation of a heat sink (area-to-point conduction problem).

A square plate is heated uniformly and cooled through a short window in the
middle of its left edge.  We distribute a fixed amount of highly conductive
material with SIMP interpolation, a cone filter and the optimality-criteria
update.  The conduction equation is solved matrix-free with conjugate gradients.
"""
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.sparse.linalg import cg

NX = NY = 56
K_SOLID, K_VOID = 1.0, 1e-2
VOLUME_FRACTION = 0.35
FILTER_RADIUS = 2.5
MOVE = 0.15


class ConductionModel:
    """Finite-volume discretisation of -div(k grad T) = q on a unit plate."""

    def __init__(self, nx, ny, window=8):
        self.nx, self.ny = nx, ny
        self.heat = jnp.full((ny, nx), 1.0 / (nx * ny))
        sink = np.zeros((ny, 1), np.float32)
        sink[ny // 2 - window // 2: ny // 2 + window // 2] = 1.0
        self.sink = jnp.asarray(sink)

    def face_conductivity(self, k):
        kx = 2.0 * k[:, 1:] * k[:, :-1] / (k[:, 1:] + k[:, :-1])
        ky = 2.0 * k[1:, :] * k[:-1, :] / (k[1:, :] + k[:-1, :])
        return kx, ky

    def apply(self, k, T):
        kx, ky = self.face_conductivity(k)
        fx = kx * (T[:, 1:] - T[:, :-1])
        fy = ky * (T[1:, :] - T[:-1, :])
        out = -(jnp.pad(fx, ((0, 0), (0, 1))) - jnp.pad(fx, ((0, 0), (1, 0))))
        out = out - (jnp.pad(fy, ((0, 1), (0, 0))) - jnp.pad(fy, ((1, 0), (0, 0))))
        edge = 2.0 * k[:, :1] * self.sink * T[:, :1]
        return out + jnp.pad(edge, ((0, 0), (0, self.nx - 1)))

    def diagonal(self, k):
        kx, ky = self.face_conductivity(k)
        d = jnp.pad(kx, ((0, 0), (0, 1))) + jnp.pad(kx, ((0, 0), (1, 0)))
        d = d + jnp.pad(ky, ((0, 1), (0, 0))) + jnp.pad(ky, ((1, 0), (0, 0)))
        return d + jnp.pad(2.0 * k[:, :1] * self.sink, ((0, 0), (0, self.nx - 1)))

    def temperature(self, k, guess):
        scale = 1.0 / self.diagonal(k)

        def operator(T):
            return self.apply(k, T)

        T, _ = cg(operator, self.heat, x0=guess, tol=1e-5, maxiter=600,
                  M=lambda r: scale * r)
        return T


def cone_filter(radius):
    r = int(np.ceil(radius))
    y, x = np.mgrid[-r:r + 1, -r:r + 1]
    w = np.maximum(0.0, radius - np.hypot(x, y)).astype(np.float32)
    w = jnp.asarray(w / w.sum())

    @jax.jit
    def smooth(field):
        padded = jnp.pad(field, r, mode="edge")
        return jax.scipy.signal.convolve2d(padded, w, mode="valid")
    return smooth


def simp(rho, penalty):
    return K_VOID + (K_SOLID - K_VOID) * rho ** penalty


def make_sensitivity(model):
    @jax.jit
    def sensitivity(rho, T, penalty):
        # the problem is self-adjoint: dC/drho = -T . (dA/drho) T
        def energy(r):
            return jnp.vdot(T, model.apply(simp(r, penalty), T))
        return -jax.grad(energy)(rho)
    return sensitivity


@partial(jax.jit, static_argnames=("bisections",))
def oc_update(rho, dc, bisections=40):
    lower = jnp.maximum(0.0, rho - MOVE)
    upper = jnp.minimum(1.0, rho + MOVE)

    def candidate(lam):
        return jnp.clip(rho * jnp.sqrt(jnp.maximum(-dc, 1e-12) / lam), lower, upper)

    def body(_, bounds):
        lo, hi = bounds
        mid = jnp.sqrt(lo * hi)
        heavy = candidate(mid).mean() > VOLUME_FRACTION
        return jnp.where(heavy, mid, lo), jnp.where(heavy, hi, mid)

    lo, hi = jax.lax.fori_loop(0, bisections, body, (jnp.float32(1e-9), jnp.float32(1e6)))
    return candidate(jnp.sqrt(lo * hi))


def main():
    t0 = time.time()
    model = ConductionModel(NX, NY)
    smooth = cone_filter(FILTER_RADIUS)
    sensitivity = make_sensitivity(model)
    rho = jnp.full((NY, NX), VOLUME_FRACTION)
    T = jnp.zeros((NY, NX))
    history = []
    penalty = 1.0
    for it in range(64):
        if it % 12 == 11:
            penalty = min(penalty + 0.5, 3.0)
        physical = smooth(rho)
        T = model.temperature(simp(physical, penalty), T)
        dc = smooth(sensitivity(physical, T, penalty))
        rho = oc_update(rho, dc)
        history.append(jnp.vdot(model.heat, T))
        if it % 10 == 0:
            print(f"it {it:3d}  p={penalty:.1f}  compliance={float(history[-1]):.5f}  "
                  f"Tmax={float(T.max()):.4f}  [{time.time() - t0:.1f}s]")
    layout = np.asarray(rho)
    print("final compliance", float(history[-1]), "grey fraction",
          float(((layout > 0.1) & (layout < 0.9)).mean()))


if __name__ == "__main__":
    main()
