"""Classify synthetic texture patches (stripes, checkers, blobs, rings, ...) with a small residual CNN in flax.nnx."""
import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

SIZE, PAD, CLASSES = 24, 3, 6


def make_patches(n, rng):
    """Grey patches of six texture families with random phase, frequency and noise."""
    yy, xx = np.meshgrid(np.arange(SIZE), np.arange(SIZE), indexing="ij")
    images = np.empty((n, SIZE, SIZE, 1), np.float32)
    labels = rng.integers(0, CLASSES, n)
    for i, c in enumerate(labels):
        f, p, q = rng.uniform(0.5, 1.1), rng.uniform(0, 6.28), rng.uniform(0, 6.28)
        if c == 0:
            g = np.sin(f * xx + p)
        elif c == 1:
            g = np.sin(f * yy + p)
        elif c == 2:
            g = np.sin(f * (xx + yy) * 0.7 + p)
        elif c == 3:
            g = np.sign(np.sin(f * xx + p) * np.sin(f * yy + q))
        elif c == 4:
            g = np.sin(f * np.hypot(xx - SIZE / 2 + p, yy - SIZE / 2 + q))
        else:
            g = np.sin(f * xx + p) * np.sin(f * yy + q)
        images[i, ..., 0] = g + rng.normal(0, 0.9, g.shape)
    return images, labels.astype(np.int32)


class Block(nnx.Module):
    def __init__(self, c_in, c_out, stride, rngs):
        self.conv1 = nnx.Conv(c_in, c_out, (3, 3), strides=stride, rngs=rngs)
        self.norm1 = nnx.BatchNorm(c_out, rngs=rngs)
        self.conv2 = nnx.Conv(c_out, c_out, (3, 3), rngs=rngs)
        self.norm2 = nnx.BatchNorm(c_out, rngs=rngs)
        self.skip = nnx.Conv(c_in, c_out, (1, 1), strides=stride, rngs=rngs)

    def __call__(self, x):
        h = nnx.relu(self.norm1(self.conv1(x)))
        return nnx.relu(self.norm2(self.conv2(h)) + self.skip(x))


class TextureNet(nnx.Module):
    def __init__(self, rngs):
        self.block1 = Block(1, 12, 2, rngs)
        self.block2 = Block(12, 24, 2, rngs)
        self.head = nnx.Linear(24, CLASSES, rngs=rngs)

    def __call__(self, x):
        x = self.block2(self.block1(x))
        return self.head(x.mean(axis=(1, 2)))


@nnx.jit
def train_step(model, optimizer, images, labels):
    def loss_fn(model):
        logits = model(images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
    loss, grads = nnx.value_and_grad(loss_fn)(model)
    optimizer.update(model, grads)
    return loss


@nnx.jit
def count_correct(model, images, labels):
    return (model(images).argmax(-1) == labels).sum()


def augment(images, rng):
    """Random shift (reflect padding), flip and contrast for each patch of a batch."""
    out = []
    for img in images:
        padded = jnp.pad(img, ((PAD, PAD), (PAD, PAD), (0, 0)), mode="reflect")
        dy, dx = rng.integers(0, 2 * PAD + 1, 2)
        patch = jax.lax.dynamic_slice(padded, (dy, dx, 0), (SIZE, SIZE, 1))
        if rng.random() < 0.5:
            patch = jnp.flip(patch, axis=(0, 1))
        out.append(patch * rng.uniform(0.8, 1.2))
    return jnp.stack(out)


def evaluate(model, images, labels, batch):
    model.eval()
    hits = [count_correct(model, images[s:s + batch], labels[s:s + batch]) for s in range(0, len(images), batch)]
    model.train()
    return sum(int(h) for h in hits) / len(images)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=4e-3)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    train_x, train_y = make_patches(1536, rng)
    test_x, test_y = make_patches(512, rng)
    model = TextureNet(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(args.lr), wrt=nnx.Param)
    for epoch in range(args.epochs):
        start = time.perf_counter()
        order = rng.permutation(len(train_x))
        losses = []
        for s in range(0, len(order), args.batch):
            idx = order[s:s + args.batch]
            losses.append(train_step(model, optimizer, augment(train_x[idx], rng), train_y[idx]))
        mean_loss = float(jnp.stack(losses).mean())
        accuracy = evaluate(model, test_x, test_y, 128)
        jax.clear_caches()
        print(f"epoch {epoch}: loss {mean_loss:.3f}, test accuracy {accuracy:.3f} ({time.perf_counter() - start:.1f} s)")


if __name__ == "__main__":
    main()
