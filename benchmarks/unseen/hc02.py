# Sparse-view CT by total-variation FISTA, one slice after another.
# The system matrix is made with a simple strip model; all slices of the volume share it.
import time

import jax
import jax.numpy as jnp
import numpy as np

SIDE = 64            # pixels a side
ANGLES = 40
DETECTORS = 91
N_SLICES = 3
MAX_ITER = 50
TOL = 2e-5
LAMBDA = 0.02


def system_matrix():
    """Rows: (angle, detector) rays; columns: pixels. Linear interpolation onto the detectors."""
    grid = np.arange(SIDE) - (SIDE - 1) / 2
    xx, yy = np.meshgrid(grid, grid)
    A = np.zeros((ANGLES, DETECTORS, SIDE * SIDE))
    pix = np.arange(SIDE * SIDE)
    for a, phi in enumerate(np.linspace(0, np.pi, ANGLES, endpoint=False)):
        s = (xx * np.cos(phi) + yy * np.sin(phi)).ravel() + (DETECTORS - 1) / 2
        lo = np.clip(np.floor(s).astype(int), 0, DETECTORS - 2)
        w = s - lo
        A[a, lo, pix] += 1 - w
        A[a, lo + 1, pix] += w
    return A.reshape(ANGLES * DETECTORS, SIDE * SIDE) / SIDE


def phantom(z, rng):
    grid = np.linspace(-1, 1, SIDE)
    xx, yy = np.meshgrid(grid, grid)
    img = np.where((xx / 0.8) ** 2 + (yy / 0.9) ** 2 < 1, 0.4, 0.0)
    for _ in range(5):
        cx, cy = rng.uniform(-0.45, 0.45, 2)
        rx, ry = rng.uniform(0.08, 0.28, 2)
        img[((xx - cx) / rx) ** 2 + ((yy - cy) / ry) ** 2 < 1] += rng.uniform(-0.2, 0.5)
    return np.clip(img * (1 + 0.05 * z), 0, None)


def grad2d(u):
    return jnp.stack([jnp.diff(u, axis=0, append=u[-1:]), jnp.diff(u, axis=1, append=u[:, -1:])])


def smoothed_tv(u, eps=1e-3):
    return jnp.sum(jnp.sqrt(jnp.sum(grad2d(u) ** 2, axis=0) + eps ** 2))


def objective(x, A, b):
    return 0.5 * jnp.sum((A @ x - b) ** 2) + LAMBDA * smoothed_tv(x.reshape(SIDE, SIDE))


@jax.jit
def fista_step(x, z, t, A, b, step):
    g = jax.grad(objective)(z, A, b)
    x_new = jnp.maximum(z - step * g, 0.0)
    t_new = 0.5 * (1 + jnp.sqrt(1 + 4 * t * t))
    z_new = x_new + (t - 1) / t_new * (x_new - x)
    return x_new, z_new, t_new


@jax.jit
def largest_singular_value(A, v):
    def body(_, v):
        w = A.T @ (A @ v)
        return w / jnp.linalg.norm(w)
    v = jax.lax.fori_loop(0, 12, body, v)
    return jnp.linalg.norm(A @ v)


def reconstruct(A, sinogram, step):
    x = jnp.zeros(SIDE * SIDE)
    z, t = x, jnp.float32(1.0)
    previous = np.inf
    for it in range(MAX_ITER):
        x, z, t = fista_step(x, z, t, A, sinogram, step)
        if it % 10 == 9:
            value = float(objective(x, A, sinogram))
            if abs(previous - value) < TOL * value:
                break
            previous = value
    return np.asarray(x).reshape(SIDE, SIDE), it + 1, value


def main():
    rng = np.random.default_rng(11)
    A = system_matrix()
    L = float(largest_singular_value(A, np.ones(SIDE * SIDE, np.float32))) ** 2 + 8 * LAMBDA / 1e-2
    print(f"system matrix {A.shape}, {A.nbytes / 2 ** 20:.0f} MiB, Lipschitz constant {L:.2f}")
    volume, errors = [], []
    for k in range(N_SLICES):
        truth = phantom(k, rng)
        clean = A @ truth.ravel()
        sinogram = (clean + rng.normal(0, 0.004, clean.shape)).astype(np.float32)
        start = time.perf_counter()
        image, n_iter, value = reconstruct(A, sinogram, 1.0 / L)
        volume.append(image)
        error = np.linalg.norm(image - truth) / np.linalg.norm(truth)
        errors.append(error)
        print(f"slice {k}: {n_iter} iterations, objective {value:.4f}, relative error {error:.3f}, "
              f"{time.perf_counter() - start:.1f} s")
    volume = np.stack(volume)
    print(f"volume {volume.shape}, mean density {volume.mean():.4f}, mean error {np.mean(errors):.3f}")


if __name__ == "__main__":
    main()
