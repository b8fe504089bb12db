"""Grow a target pattern with a neural cellular automaton trained from a pool of states."""
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

SIZE = 16
CHANNELS = 8
POOL = 64
BATCH = 8
ITERATIONS = 80
MIN_STEPS, MAX_STEPS = 8, 14


class UpdateRule(nn.Module):
    hidden: int = 32

    @nn.compact
    def __call__(self, perception):
        h = nn.relu(nn.Dense(self.hidden)(perception))
        return nn.Dense(CHANNELS, kernel_init=nn.initializers.zeros)(h)


rule = UpdateRule()


def perceive(grid):
    """Identity, two gradients and a Laplacian of every channel, on a torus."""
    left, right = jnp.roll(grid, 1, 2), jnp.roll(grid, -1, 2)
    up, down = jnp.roll(grid, 1, 1), jnp.roll(grid, -1, 1)
    return jnp.concatenate([grid, (right - left) / 2, (down - up) / 2, left + right + up + down - 4 * grid], -1)


def evolve(params, grid, key):
    fire = jax.random.bernoulli(key, 0.6, grid.shape[:-1] + (1,))
    return grid + rule.apply(params, perceive(grid)) * fire


def target_pattern():
    yy, xx = np.mgrid[0:SIZE, 0:SIZE] / SIZE * 2 * np.pi
    rgb = [np.sin(xx) * np.cos(yy), np.sin(2 * xx + yy), np.cos(xx - yy)]
    return (0.5 + 0.5 * np.stack(rgb, -1)).astype(np.float32)


def seed_state():
    grid = np.zeros((SIZE, SIZE, CHANNELS), np.float32)
    grid[SIZE // 2, SIZE // 2] = 1.0
    return grid


class Pool:
    def __init__(self, n, seed):
        self.states = np.repeat(seed_state()[None], n, axis=0)
        self.rng = np.random.default_rng(seed)

    def draw(self, n):
        idx = self.rng.choice(len(self.states), n, replace=False)
        batch = self.states[idx].copy()
        batch[0] = seed_state()
        return idx, batch

    def put_back(self, idx, batch):
        self.states[idx] = np.asarray(batch)


def damage(batch, rng, share=0.5):
    """Erase a disc in part of the batch, so that the rule learns to repair."""
    for grid in batch:
        if rng.uniform() < share:
            cy, cx, r = rng.integers(3, SIZE - 3, 2).tolist() + [int(rng.integers(2, 5))]
            yy, xx = np.mgrid[0:SIZE, 0:SIZE]
            grid[(yy - cy) ** 2 + (xx - cx) ** 2 < r * r] = 0.0
    return batch


def make_train_step(tx, target):
    @jax.jit
    def train_step(params, opt_state, batch, key, n_steps):
        def loss_fn(params):
            def turn(grid, step):
                i, k = step
                return jnp.where(i < n_steps, evolve(params, grid, k), grid), None

            steps = jnp.arange(MAX_STEPS), jax.random.split(key, MAX_STEPS)
            grid, _ = jax.lax.scan(turn, batch, steps)
            per_state = jnp.mean((grid[..., :3] - target) ** 2, axis=(1, 2, 3))
            overflow = jnp.mean(jnp.maximum(jnp.abs(grid) - 2.0, 0.0))
            return per_state.mean() + overflow, grid

        (loss, grid), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
        grads = jax.tree.map(lambda g: g / (jnp.linalg.norm(g) + 1e-8), grads)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss, grid

    return train_step


def main():
    pool = Pool(POOL, seed=13)
    rng = np.random.default_rng(14)
    key = jax.random.key(15)
    params = jax.jit(rule.init)(key, jnp.zeros((1, SIZE, SIZE, 4 * CHANNELS)))
    tx = optax.adam(2e-3)
    opt_state = tx.init(params)
    train_step = make_train_step(tx, target_pattern())
    history = []
    t0 = time.perf_counter()
    for it in range(1, ITERATIONS + 1):
        idx, batch = pool.draw(BATCH)
        batch = damage(batch, rng)
        n_steps = int(rng.integers(MIN_STEPS, MAX_STEPS + 1))
        params, opt_state, loss, batch = train_step(
            params, opt_state, batch, jax.random.fold_in(key, it), n_steps)
        pool.put_back(idx, batch)
        history.append(loss)
        if it % 20 == 0:
            mean = float(jnp.stack(history[-20:]).mean())
            print(f"iteration {it:4d} loss {mean:.4f} ({time.perf_counter() - t0:.1f}s)")


if __name__ == "__main__":
    main()
