"""Data-parallel radar nowcasting: predict the next rain field from four past ones on four devices."""
import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"

import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.training import train_state
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

GRID = 24
HISTORY = 4
BATCH = 32
STEPS_PER_EPOCH = 12
EPOCHS = 6
EVAL_BATCHES = 3


class Nowcaster(nn.Module):
    width: int = 12
    depth: int = 2

    @nn.compact
    def __call__(self, frames):
        h = nn.Conv(self.width, (3, 3))(frames)
        for _ in range(self.depth):
            r = nn.silu(nn.GroupNorm(num_groups=4)(h))
            h = h + nn.Conv(self.width, (3, 3))(r)
        delta = nn.Conv(1, (3, 3))(nn.silu(h))
        return nn.softplus(frames[..., -1:] + delta)


class RainCells:
    """Gaussian rain cells that drift and decay; yields (history, target)."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.yy, self.xx = np.mgrid[0:GRID, 0:GRID].astype(np.float32)

    def sample(self, n):
        cells = 3
        pos = self.rng.uniform(0, GRID, (n, cells, 2, 1, 1)).astype(np.float32)
        vel = self.rng.normal(0, 1.2, (n, cells, 2, 1, 1)).astype(np.float32)
        amp = self.rng.gamma(2.0, 1.0, (n, cells, 1, 1)).astype(np.float32)
        frames = []
        for t in range(HISTORY + 1):
            p = pos + t * vel
            d2 = (self.yy - p[:, :, 0]) ** 2 + (self.xx - p[:, :, 1]) ** 2
            frames.append((amp * 0.95 ** t * np.exp(-d2 / 9.0)).sum(1))
        seq = np.stack(frames, axis=-1)
        return seq[..., :HISTORY], seq[..., HISTORY:]


def make_mesh():
    return Mesh(np.array(jax.devices()), ("data",))


def shard(mesh, batch):
    return jax.device_put(batch, NamedSharding(mesh, P("data")))


def create_state(seed):
    model = Nowcaster()
    params = model.init(jax.random.key(seed), jnp.zeros((1, GRID, GRID, HISTORY)))["params"]
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(2e-3))
    return train_state.TrainState.create(apply_fn=model.apply, params=params, tx=tx)


def rain_loss(apply_fn, params, frames, target):
    pred = apply_fn({"params": params}, frames)
    weight = 1.0 + 2.0 * (target > 0.5)
    return jnp.mean(weight * (pred - target) ** 2)


@jax.jit
def train_step(state, frames, target):
    loss, grads = jax.value_and_grad(partial(rain_loss, state.apply_fn))(state.params, frames, target)
    return state.apply_gradients(grads=grads), loss


def make_counts(apply_fn, mesh, threshold=0.5):
    def local_counts(params, frames, target):
        pred = apply_fn({"params": params}, frames) > threshold
        obs = target > threshold
        counts = jnp.stack([jnp.sum(pred & obs), jnp.sum(pred & ~obs), jnp.sum(~pred & obs)])
        return jax.lax.psum(counts, "data")

    return jax.jit(jax.shard_map(
        local_counts, mesh=mesh, in_specs=(P(), P("data"), P("data")), out_specs=P()))


def critical_success_index(counted, state, mesh, batches):
    """CSI over a held-out set, counts reduced over the mesh."""
    counts = [counted(state.params, *shard(mesh, batch)) for batch in batches]
    hits, false_alarms, misses = np.sum(jax.device_get(counts), axis=0).tolist()
    return hits / max(1, hits + false_alarms + misses)


def main():
    mesh = make_mesh()
    print(f"mesh {mesh.shape}")
    train, held_out = RainCells(0), RainCells(1)
    eval_batches = [held_out.sample(BATCH) for _ in range(EVAL_BATCHES)]
    state = jax.device_put(create_state(seed=3), NamedSharding(mesh, P()))
    counted = make_counts(state.apply_fn, mesh)
    for epoch in range(EPOCHS):
        t0 = time.perf_counter()
        losses = []
        for _ in range(STEPS_PER_EPOCH):
            frames, target = shard(mesh, train.sample(BATCH))
            state, loss = train_step(state, frames, target)
            losses.append(loss)
        csi = critical_success_index(counted, state, mesh, eval_batches)
        mean_loss = float(jnp.mean(jnp.stack(losses)))
        print(f"epoch {epoch} loss {mean_loss:.4f} csi {csi:.3f} ({time.perf_counter() - t0:.1f}s)")


if __name__ == "__main__":
    main()
