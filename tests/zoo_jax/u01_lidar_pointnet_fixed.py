"""Classify road objects in LiDAR sweeps with a small PointNet (flax.nnx)."""
import argparse
import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

CLASSES = ("car", "pole", "pedestrian", "cyclist", "barrier")


@dataclasses.dataclass
class Config:
    n_train: int = 512
    n_val: int = 128
    points: int = 256
    batch: int = 64
    epochs: int = 12
    lr: float = 2e-3
    seed: int = 11


def synth_object(rng, label, n):
    """Point cloud of one object: a few noisy primitives per class."""
    size = np.array([[4.2, 1.8, 1.5], [0.2, 0.2, 4.0], [0.5, 0.5, 1.8], [1.7, 0.6, 1.7], [6.0, 0.3, 0.9]])[label]
    pts = rng.uniform(-0.5, 0.5, size=(n, 3)) * size
    side = rng.integers(0, 3, size=n)
    pts[np.arange(n), side] = np.sign(pts[np.arange(n), side]) * size[side] / 2
    return pts + rng.normal(0, 0.05, size=pts.shape)


class SweepDataset:
    def __init__(self, cfg, n, seed, train):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, len(CLASSES), size=n).astype(np.int32)
        self.clouds = np.stack([synth_object(rng, y, cfg.points) for y in self.labels]).astype(np.float32)
        self.rng = np.random.default_rng(seed + 1)
        self.train = train

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        cloud = self.clouds[i]
        if self.train:
            cloud = self.augment(cloud)
        return cloud, self.labels[i]

    def augment(self, cloud):
        yaw = self.rng.uniform(0, 2 * np.pi)
        c, s = np.cos(yaw), np.sin(yaw)
        out = cloud @ np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]], np.float32)
        keep = self.rng.uniform(size=len(cloud)) > 0.1
        out[~keep] = out[0]
        return out + self.rng.normal(0, 0.01, size=out.shape).astype(np.float32)

    def batches(self, size):
        order = self.rng.permutation(len(self)) if self.train else np.arange(len(self))
        for lo in range(0, len(self) - size + 1, size):
            samples = [self[i] for i in order[lo:lo + size]]
            yield np.stack([s[0] for s in samples]), np.stack([s[1] for s in samples])


class SharedMLP(nnx.Module):
    def __init__(self, widths, rngs):
        self.layers = nnx.List([nnx.Linear(a, b, rngs=rngs) for a, b in zip(widths[:-1], widths[1:])])
        self.norms = nnx.List([nnx.LayerNorm(b, rngs=rngs) for b in widths[1:]])

    def __call__(self, x):
        for layer, norm in zip(self.layers, self.norms):
            x = nnx.relu(norm(layer(x)))
        return x


class PointNet(nnx.Module):
    def __init__(self, n_classes, rngs):
        self.local = SharedMLP((3, 32), rngs)
        self.wide = SharedMLP((32, 64), rngs)
        self.head = SharedMLP((64, 32), rngs)
        self.out = nnx.Linear(32, n_classes, rngs=rngs)

    def __call__(self, pts):
        h = self.wide(self.local(pts))
        pooled = h.max(axis=1)
        self.sow(nnx.Intermediate, "dead_units", (pooled <= 0).mean())
        return self.out(self.head(pooled))


def loss_fn(model, pts, labels):
    logits = model(pts)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
    return loss, (logits.argmax(-1) == labels).mean()


@nnx.jit
def train_step(model, optimizer, pts, labels):
    (loss, acc), grads = nnx.value_and_grad(loss_fn, has_aux=True)(model, pts, labels)
    optimizer.update(model, grads)
    return loss, acc


@nnx.jit
def val_step(model, pts, labels):
    return loss_fn(model, pts, labels)


def run_epoch(model, optimizer, data, cfg):
    losses, accs, sown = [], [], []
    for pts, labels in data.batches(cfg.batch):
        loss, acc = train_step(model, optimizer, pts, labels)
        losses.append(loss)
        accs.append(acc)
        sown.append(nnx.pop(model, nnx.Intermediate))
    dead = jnp.stack(jax.tree.leaves(sown)).mean()
    return float(jnp.stack(losses).mean()), float(jnp.stack(accs).mean()), float(dead)


def validate(model, data, cfg):
    accs = []
    for pts, labels in data.batches(cfg.batch):
        _, acc = val_step(model, pts, labels)
        accs.append(acc)
        nnx.pop(model, nnx.Intermediate)
    return float(jnp.stack(accs).mean())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=Config.epochs)
    cfg = Config(epochs=parser.parse_args().epochs)
    train = SweepDataset(cfg, cfg.n_train, cfg.seed, train=True)
    val = SweepDataset(cfg, cfg.n_val, cfg.seed + 100, train=False)
    model = PointNet(len(CLASSES), nnx.Rngs(cfg.seed))
    optimizer = nnx.Optimizer(model, optax.adamw(cfg.lr), wrt=nnx.Param)
    for epoch in range(cfg.epochs):
        t0 = time.perf_counter()
        loss, acc, dead = run_epoch(model, optimizer, train, cfg)
        val_acc = validate(model, val, cfg)
        print(f"epoch {epoch}: loss {loss:.3f} acc {acc:.3f} dead {dead:.3f} "
              f"val_acc {val_acc:.3f} ({time.perf_counter() - t0:.1f}s)")


if __name__ == "__main__":
    main()
