"""Fourier neural operator for the 1-D heat equation with variable conductivity.

Learns  (u(., 0), kappa(.))  ->  u(., T)  from finite-difference solutions.
"""
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

GRID = 128
T_FINAL = 0.02
N_TRAIN, N_TEST = 256, 64
BATCH = 32
EPOCHS = 14


def random_fields(rng, n, modes=8, decay=1.5):
    x = np.linspace(0.0, 1.0, GRID, endpoint=False)
    out = np.zeros((n, GRID), np.float32)
    for k in range(1, modes + 1):
        a, b = rng.normal(size=(2, n, 1)) / k**decay
        out += (a * np.sin(2 * np.pi * k * x) + b * np.cos(2 * np.pi * k * x)).astype(np.float32)
    return out


def solve_heat(u0, kappa, t_final):
    """Explicit conservative scheme on a periodic grid."""
    dx = 1.0 / GRID
    dt = 0.25 * dx**2 / kappa.max()
    n_steps = int(np.ceil(t_final / dt))
    dt = t_final / n_steps
    u = u0.copy()
    k_half = 0.5 * (kappa + np.roll(kappa, -1, axis=1))
    for _ in range(n_steps):
        flux = k_half * (np.roll(u, -1, axis=1) - u) / dx
        u = u + dt * (flux - np.roll(flux, 1, axis=1)) / dx
    return u.astype(np.float32)


class SpectralConv(eqx.Module):
    w_re: jax.Array
    w_im: jax.Array
    modes: int = eqx.field(static=True)

    def __init__(self, width, modes, *, key):
        k1, k2 = jax.random.split(key)
        self.w_re = jax.random.normal(k1, (width, width, modes)) / width
        self.w_im = jax.random.normal(k2, (width, width, modes)) / width
        self.modes = modes

    def __call__(self, h):
        spec = jnp.fft.rfft(h, axis=-1)[:, : self.modes]
        w = self.w_re + 1j * self.w_im
        mixed = jnp.einsum("im,iom->om", spec, w)
        full = jnp.zeros((w.shape[1], GRID // 2 + 1), mixed.dtype).at[:, : self.modes].set(mixed)
        return jnp.fft.irfft(full, n=GRID, axis=-1)


class HeatFNO(eqx.Module):
    lift: eqx.nn.Conv1d
    spectral: list
    local: list
    head: list

    def __init__(self, width, modes, depth, *, key):
        ks = jax.random.split(key, 2 * depth + 3)
        self.lift = eqx.nn.Conv1d(3, width, 1, key=ks[0])
        self.spectral = [SpectralConv(width, modes, key=k) for k in ks[1 : depth + 1]]
        self.local = [eqx.nn.Conv1d(width, width, 1, key=k) for k in ks[depth + 1 : 2 * depth + 1]]
        self.head = [eqx.nn.Conv1d(width, 64, 1, key=ks[-2]), eqx.nn.Conv1d(64, 1, 1, key=ks[-1])]

    def __call__(self, u0, kappa):
        x = jnp.linspace(0.0, 1.0, GRID, endpoint=False)
        h = self.lift(jnp.stack([u0, kappa, x]))
        for spec, loc in zip(self.spectral, self.local):
            h = jax.nn.gelu(spec(h) + loc(h))
        return self.head[1](jax.nn.gelu(self.head[0](h)))[0]


class CurriculumLoss(eqx.Module):
    """Relative L2 plus a gradient (Sobolev) term that is faded in, plus input jitter faded out."""

    sobolev: float
    jitter: float

    def at(self, progress):
        return CurriculumLoss(self.sobolev * progress, self.jitter * (1.0 - progress))

    def __call__(self, model, batch, key):
        u0, kappa, target = batch
        u0 = u0 + self.jitter * jax.random.normal(key, u0.shape)
        pred = jax.vmap(model)(u0, kappa)
        err = pred - target
        rel = jnp.sqrt(jnp.sum(err**2, -1) / jnp.sum(target**2, -1))
        slope = jnp.mean((jnp.roll(err, -1, -1) - err) ** 2) * GRID
        return jnp.mean(rel) + self.sobolev * slope


@eqx.filter_jit
def train_step(model, opt_state, criterion, batch, key, optim):
    loss, grads = eqx.filter_value_and_grad(lambda m: criterion(m, batch, key))(model)
    updates, opt_state = optim.update(grads, opt_state, eqx.filter(model, eqx.is_array))
    return eqx.apply_updates(model, updates), opt_state, loss


@eqx.filter_jit
def test_error(model, u0, kappa, target):
    pred = jax.vmap(model)(u0, kappa)
    return jnp.mean(jnp.linalg.norm(pred - target, axis=-1) / jnp.linalg.norm(target, axis=-1))


def main():
    rng = np.random.default_rng(0)
    n = N_TRAIN + N_TEST
    u0 = random_fields(rng, n)
    kappa = np.exp(0.3 * random_fields(rng, n, modes=3)).clip(0.3, 2.5)
    u_final = solve_heat(u0, kappa, T_FINAL)
    train = (u0[:N_TRAIN], kappa[:N_TRAIN], u_final[:N_TRAIN])
    test = [jnp.asarray(a[N_TRAIN:]) for a in (u0, kappa, u_final)]

    key = jax.random.key(0)
    model = HeatFNO(width=24, modes=16, depth=4, key=key)
    steps = EPOCHS * (N_TRAIN // BATCH)
    optim = optax.adamw(optax.cosine_decay_schedule(2e-3, steps), weight_decay=1e-5)
    opt_state = optim.init(eqx.filter(model, eqx.is_array))
    base = CurriculumLoss(sobolev=0.5, jitter=0.05)

    start = time.time()
    for epoch in range(EPOCHS):
        criterion = base.at(epoch / (EPOCHS - 1))
        order = rng.permutation(N_TRAIN)
        losses = []
        for i in range(0, N_TRAIN, BATCH):
            idx = order[i : i + BATCH]
            key, sub = jax.random.split(key)
            batch = tuple(jnp.asarray(a[idx]) for a in train)
            model, opt_state, loss = train_step(model, opt_state, criterion, batch, sub, optim)
            losses.append(loss)
        err = test_error(model, *test)
        print(f"epoch {epoch:2d}  loss {float(jnp.stack(losses).mean()):.4f}  test rel-L2 {float(err):.4f}")
    print(f"trained in {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
