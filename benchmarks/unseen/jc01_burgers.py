"""Viscous Burgers' equation with a physics-informed network and residual-based adaptive refinement (RAR).

u_t + u u_x = nu u_xx on x in [-1, 1], t in [0, 1], u(x, 0) = -sin(pi x), u(+-1, t) = 0.
Every 150 Adam steps the points with the worst residual join the collocation set.
"""
import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

NU = 0.01 / np.pi * 5


def init_net(key, widths):
    layers = []
    for k, (n_in, n_out) in zip(jax.random.split(key, len(widths)), zip(widths[:-1], widths[1:])):
        layers.append((jax.random.normal(k, (n_in, n_out)) * np.sqrt(2.0 / (n_in + n_out)), jnp.zeros(n_out)))
    return layers


def u_net(params, t, x):
    h = jnp.stack([2.0 * t - 1.0, x])
    for w, b in params[:-1]:
        h = jnp.tanh(h @ w + b)
    w, b = params[-1]
    return (h @ w + b)[0]


def residual(params, t, x):
    u = u_net(params, t, x)
    u_t, u_x = jax.grad(u_net, argnums=(1, 2))(params, t, x)
    u_xx = jax.grad(jax.grad(u_net, argnums=2), argnums=2)(params, t, x)
    return u_t + u * u_x - NU * u_xx


batch_residual = jax.vmap(residual, in_axes=(None, 0, 0))
batch_u = jax.vmap(u_net, in_axes=(None, 0, 0))


def loss_fn(params, colloc, initial, walls):
    r = batch_residual(params, colloc[:, 0], colloc[:, 1])
    u0 = batch_u(params, initial[:, 0], initial[:, 1])
    ub = batch_u(params, walls[:, 0], walls[:, 1])
    return jnp.mean(r**2) + 10.0 * jnp.mean((u0 + jnp.sin(jnp.pi * initial[:, 1])) ** 2) + 10.0 * jnp.mean(ub**2)


class Trainer:
    def __init__(self, args, rng):
        self.rng = rng
        self.opt = optax.adam(optax.exponential_decay(3e-3, 400, 0.8))
        self.params = init_net(jax.random.key(args.seed), [2, 24, 24, 24, 1])
        self.state = self.opt.init(self.params)
        self.initial = np.stack([np.zeros(64), np.linspace(-1, 1, 64)], 1).astype(np.float32)
        t = rng.uniform(0, 1, 64)
        self.walls = np.stack([t, np.sign(rng.uniform(-1, 1, 64))], 1).astype(np.float32)
        self.colloc = np.stack([rng.uniform(0, 1, args.points), rng.uniform(-1, 1, args.points)], 1).astype(np.float32)

        @jax.jit
        def step(params, state, colloc, initial, walls):
            loss, grads = jax.value_and_grad(loss_fn)(params, colloc, initial, walls)
            updates, state = self.opt.update(grads, state)
            return optax.apply_updates(params, updates), state, loss

        self.step = step

    def train(self, steps):
        points, initial, walls = jax.device_put((self.colloc, self.initial, self.walls))
        for _ in range(steps):
            self.params, self.state, loss = self.step(self.params, self.state, points, initial, walls)
        return float(loss)

    def refine(self, pool, factor):
        """Adds the pool's points whose residual exceeds `factor` times the mean one."""
        cand = np.stack([self.rng.uniform(0, 1, pool), self.rng.uniform(-1, 1, pool)], 1).astype(np.float32)
        res = np.abs(np.asarray(jax.jit(batch_residual)(self.params, cand[:, 0], cand[:, 1])))
        worst = cand[res > factor * res.mean()][:40]
        self.colloc = np.concatenate([self.colloc, worst])
        return len(worst), float(res.mean())

    def profile(self, t, n=101):
        x = np.linspace(-1, 1, n, dtype=np.float32)
        return np.asarray(batch_u(self.params, np.full(n, t, np.float32), x))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--points", type=int, default=256)
    ap.add_argument("--rounds", type=int, default=6)
    ap.add_argument("--steps", type=int, default=150)
    args = ap.parse_args()
    trainer = Trainer(args, np.random.default_rng(args.seed))
    start = time.time()
    for r in range(args.rounds):
        loss = trainer.train(args.steps)
        added, mean_res = trainer.refine(pool=1000, factor=3.0)
        print(f"round {r:2d}  loss {loss:.5f}  |res| {mean_res:.4f}  +{added} -> {len(trainer.colloc)} points")
    for t in (0.25, 0.5, 0.9):
        u = trainer.profile(t)
        print(f"t={t:.2f}  max u {u.max():.3f}  steepest slope {np.abs(np.diff(u)).max() / 0.02:.2f}")
    print(f"done in {time.time() - start:.1f} s")


if __name__ == "__main__":
    main()
