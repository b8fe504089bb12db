"""Hot-spot detection in thermal images of solar panels, with a growing batch size.

The batch grows 32 -> 64 -> 128 in three stages of training instead of lowering
the learning rate; every size is compiled before the clock starts.
"""
import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx


@dataclass(frozen=True)
class Stage:
    batch: int
    steps: int


STAGES = (Stage(32, 150), Stage(64, 120), Stage(128, 80))
SIDE = 24


def thermal_images(n, seed):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:SIDE, 0:SIDE]
    grid = ((yy % 6 == 0) | (xx % 8 == 0)).astype(np.float32)
    images = 0.4 * rng.random((n, 1, 1)) - 0.3 * grid + 0.05 * rng.normal(size=(n, SIDE, SIDE))
    images += 0.01 * yy * rng.normal(size=(n, 1, 1))
    label = rng.integers(0, 2, n)
    cy, cx = rng.integers(4, SIDE - 4, (2, n, 1, 1))
    spot = np.exp(-((yy - cy) ** 2 + (xx - cx) ** 2) / rng.uniform(2, 6, (n, 1, 1)))
    images += label[:, None, None] * rng.uniform(0.25, 0.6, (n, 1, 1)) * spot
    return images[..., None].astype(np.float32), label.astype(np.float32)


class FaultNet(nnx.Module):
    def __init__(self, width, rngs):
        self.conv1 = nnx.Conv(1, width, (3, 3), rngs=rngs)
        self.norm1 = nnx.BatchNorm(width, momentum=0.9, rngs=rngs)
        self.conv2 = nnx.Conv(width, 2 * width, (3, 3), strides=2, rngs=rngs)
        self.norm2 = nnx.BatchNorm(2 * width, momentum=0.9, rngs=rngs)
        self.conv3 = nnx.Conv(2 * width, 2 * width, (3, 3), rngs=rngs)
        self.drop = nnx.Dropout(0.1, rngs=rngs)
        self.head = nnx.Linear(2 * width, 1, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.norm1(self.conv1(x)))
        x = nnx.relu(self.norm2(self.conv2(x)))
        x = nnx.relu(self.conv3(x))
        return self.head(self.drop(x.max(axis=(1, 2))))[:, 0]


def main():
    images, labels = thermal_images(6000, 0)
    test_images, test_labels = thermal_images(1024, 1)

    @nnx.jit
    def create():
        model = FaultNet(12, nnx.Rngs(0))
        return model, nnx.Optimizer(model, optax.adam(2e-3), wrt=nnx.Param)

    graphdef, state = nnx.split(create())

    def train_step(state, x, y):
        model, optimizer = nnx.merge(graphdef, state)
        model.train()

        def loss_fn(model):
            return optax.sigmoid_binary_cross_entropy(model(x), y).mean()

        loss, grads = nnx.value_and_grad(loss_fn)(model)
        optimizer.update(model, grads)
        return nnx.state((model, optimizer)), loss

    def scores(state, x):
        model, _ = nnx.merge(graphdef, state)
        model.eval()
        return jax.nn.sigmoid(model(x))

    jit_scores = jax.jit(scores)
    compiled = {}
    began = time.perf_counter()
    for stage in STAGES:
        x = jax.ShapeDtypeStruct((stage.batch, SIDE, SIDE, 1), jnp.float32)
        y = jax.ShapeDtypeStruct((stage.batch,), jnp.float32)
        compiled[stage.batch] = jax.jit(train_step, donate_argnums=0).lower(state, x, y).compile()
    print(f"compiled {len(compiled)} batch sizes in {time.perf_counter() - began:.1f}s")

    test_x = jax.device_put(test_images)
    rng = np.random.default_rng(3)
    began, step = time.perf_counter(), 0
    for stage in STAGES:
        run = compiled[stage.batch]
        losses = []
        for _ in range(stage.steps):
            pick = rng.integers(0, len(images), stage.batch)
            state, loss = run(state, images[pick], labels[pick])
            losses.append(loss)
            step += 1
            if step % 50 == 0:
                print(f"step {step:4d} batch {stage.batch:3d} loss {float(loss):.4f} {time.perf_counter() - began:.1f}s")
        p = np.asarray(jit_scores(state, test_x))
        order = np.argsort(p)
        ranks = np.empty(len(p))
        ranks[order] = np.arange(1, len(p) + 1)
        positive = test_labels > 0.5
        n1, n0 = positive.sum(), (~positive).sum()
        auc = (ranks[positive].sum() - n1 * (n1 + 1) / 2) / (n1 * n0)
        mean_loss = float(np.mean(jax.device_get(losses)))
        print(f"stage {stage.batch}: mean loss {mean_loss:.4f} test AUC {auc:.4f} {time.perf_counter() - began:.1f}s")


if __name__ == "__main__":
    main()
