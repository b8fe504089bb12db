"""Cross-validation of a small convolutional net on synthetic cell images (flax linen)."""
import argparse
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state


def synthetic_cells(n, size, seed):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:size, 0:size]
    images, labels = np.zeros((n, size, size, 1), np.float32), rng.integers(0, 3, n)
    for i, label in enumerate(labels):
        cx, cy = rng.uniform(size * 0.35, size * 0.65, 2)
        a, b = rng.uniform(5, 8), rng.uniform(5, 8)
        r = np.sqrt(((xx - cx) / a) ** 2 + ((yy - cy) / b) ** 2)
        if label == 0:
            img = r < 1
        elif label == 1:
            img = (r < 1) & (r > 0.6)
        else:
            img = (r < 1) * (0.6 + 0.4 * (np.sqrt((xx - cx) ** 2 + (yy - cy) ** 2) < 2.5))
        images[i, ..., 0] = img + 0.45 * rng.normal(size=(size, size))
    return images, labels.astype(np.int32)


class Block(nn.Module):
    features: int
    stride: int = 1

    @nn.compact
    def __call__(self, x, train):
        y = nn.Conv(self.features, (3, 3), (self.stride, self.stride), use_bias=False)(x)
        y = nn.relu(nn.GroupNorm(num_groups=4)(y))
        y = nn.Conv(self.features, (3, 3), use_bias=False)(y)
        y = nn.GroupNorm(num_groups=4)(y)
        if x.shape != y.shape:
            x = nn.Conv(self.features, (1, 1), (self.stride, self.stride))(x)
        y = nn.Dropout(0.1, deterministic=not train)(y)
        return nn.relu(x + y)


class CellNet(nn.Module):
    widths: tuple = (8, 16)
    classes: int = 3

    @nn.compact
    def __call__(self, x, train):
        x = nn.Conv(self.widths[0], (3, 3))(x)
        for i, w in enumerate(self.widths):
            x = Block(w, 2)(x, train)
        return nn.Dense(self.classes)(x.mean(axis=(1, 2)))


@jax.jit
def train_step(state, images, labels, key):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, images, True, rngs={"dropout": key})
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


@partial(jax.jit, static_argnums=0)
def accuracy(model, params, images, labels):
    return (model.apply({"params": params}, images, False).argmax(-1) == labels).mean()


def new_state(model, key, shape, steps, lr):
    params = model.init(key, jnp.zeros((1, *shape)), False)["params"]
    schedule = optax.cosine_decay_schedule(lr, steps)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-3))
    return train_state.TrainState.create(apply_fn=model.apply, params=params, tx=tx)


def run_fold(model, data, train_idx, test_idx, args, seed):
    images, labels = data
    key = jax.random.key(seed)
    state = new_state(model, key, images.shape[1:], args.steps, args.lr)
    rng = np.random.default_rng(seed)
    losses, smooth = [], None
    for step in range(args.steps):
        pick = rng.choice(train_idx, args.batch, replace=False)
        state, loss = train_step(state, images[pick], labels[pick], jax.random.fold_in(key, step))
        losses.append(loss)
        smooth = jnp.mean(jnp.array(losses))
        if (step + 1) % 25 == 0:
            print(f"    step {step + 1}: mean loss so far {smooth:.4f}")
    return float(accuracy(model, state.params, images[test_idx], labels[test_idx])), float(smooth)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--folds", type=int, default=3)
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--lr", type=float, default=5e-3)
    args = p.parse_args()
    data = synthetic_cells(800, 24, seed=0)
    order = np.random.default_rng(1).permutation(len(data[1]))
    parts = np.array_split(order, args.folds)
    model, scores = CellNet(), []
    for k in range(args.folds):
        rest = np.concatenate([q for j, q in enumerate(parts) if j != k])
        acc, loss = run_fold(model, data, rest, parts[k], args, seed=10 + k)
        scores.append(acc)
        print(f"fold {k}: test accuracy {acc:.3f}, mean training loss {loss:.4f}")
    print(f"cross-validated accuracy {np.mean(scores):.3f} +- {np.std(scores):.3f}")


if __name__ == "__main__":
    main()
