"""Street-sign classifier with Flax linen, batch norm and on-the-fly augmentation."""
import gc
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state
from scipy import ndimage

SIZE, N_CLASSES = 24, 8
BATCH, EPOCHS = 32, 5


def draw_sign(kind, rng):
    yy, xx = np.mgrid[:SIZE, :SIZE] / (SIZE - 1) * 2 - 1
    cy, cx, r = rng.uniform(-0.15, 0.15), rng.uniform(-0.15, 0.15), rng.uniform(0.55, 0.8)
    y, x = yy - cy, xx - cx
    shape = kind % 4
    if shape == 0:
        inside = x**2 + y**2 < r**2
    elif shape == 1:
        inside = np.maximum(np.abs(x), np.abs(y)) < r * 0.85
    elif shape == 2:
        inside = (y < r * 0.7) & (np.abs(x) < (y + r) * 0.6)
    else:
        inside = np.abs(x) + np.abs(y) < r
    colour = np.array([0.8, 0.1, 0.1]) if kind < 4 else np.array([0.1, 0.2, 0.8])
    img = np.where(inside[..., None], colour, rng.uniform(0.2, 0.7, 3))
    return (img + rng.normal(0, 0.12, img.shape)).astype(np.float32)


def make_dataset(n, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(N_CLASSES, size=n).astype(np.int32)
    return np.stack([draw_sign(k, rng) for k in labels]), labels


class Augmenter:
    def __init__(self, rng, max_angle=15.0, max_shift=2):
        self.rng, self.max_angle, self.max_shift = rng, max_angle, max_shift

    def __call__(self, image):
        angle = self.rng.uniform(-self.max_angle, self.max_angle)
        image = ndimage.rotate(image, angle, reshape=False, order=1, mode="nearest")
        dy, dx = self.rng.integers(-self.max_shift, self.max_shift + 1, 2)
        image = ndimage.shift(image, (dy, dx, 0), order=1, mode="nearest")
        image = image * self.rng.uniform(0.7, 1.3) + self.rng.uniform(-0.1, 0.1)
        return np.clip(image, 0, 1).astype(np.float32)


def batches(images, labels, rng, augment=None):
    order = rng.permutation(len(images))
    for s in range(0, len(order) - BATCH + 1, BATCH):
        idx = order[s:s + BATCH]
        x = np.stack([augment(images[i]) if augment else images[i] for i in idx])
        yield x, labels[idx]


class ConvBlock(nn.Module):
    features: int

    @nn.compact
    def __call__(self, x, train):
        x = nn.Conv(self.features, (3, 3), use_bias=False)(x)
        x = nn.BatchNorm(use_running_average=not train, momentum=0.9)(x)
        return nn.avg_pool(nn.relu(x), (2, 2), (2, 2))


class SignNet(nn.Module):
    @nn.compact
    def __call__(self, x, train: bool):
        for f in (8, 16, 32):
            x = ConvBlock(f)(x, train)
        x = x.reshape(x.shape[0], -1)
        return nn.Dense(N_CLASSES)(nn.relu(nn.Dense(48)(x)))


class TrainState(train_state.TrainState):
    batch_stats: Any


@jax.jit
def train_step(state, images, labels):
    def loss_fn(params):
        logits, new = state.apply_fn({"params": params, "batch_stats": state.batch_stats},
                                     images, train=True, mutable=["batch_stats"])
        target = optax.smooth_labels(jax.nn.one_hot(labels, N_CLASSES), 0.05)
        return optax.softmax_cross_entropy(logits, target).mean(), new["batch_stats"]

    (loss, stats), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    return state.apply_gradients(grads=grads, batch_stats=stats), loss


@jax.jit
def eval_step(state, images, labels):
    logits = state.apply_fn({"params": state.params, "batch_stats": state.batch_stats}, images, train=False)
    return jnp.sum(logits.argmax(-1) == labels)


def run_epoch(state, images, labels, rng, augment):
    losses = []
    for x, y in batches(images, labels, rng, augment):
        state, loss = train_step(state, x, y)
        losses.append(loss)
    return state, float(jnp.stack(losses).mean())


def main():
    train_x, train_y = make_dataset(960, 0)
    test_x, test_y = make_dataset(400, 1)
    rng = np.random.default_rng(5)
    augment = Augmenter(rng)
    model = SignNet()
    variables = model.init(jax.random.key(0), train_x[:1], train=False)
    steps = EPOCHS * (len(train_x) // BATCH)
    state = TrainState.create(apply_fn=model.apply, params=variables["params"], batch_stats=variables["batch_stats"],
                              tx=optax.sgd(optax.cosine_decay_schedule(0.05, steps), momentum=0.9, nesterov=True))

    for epoch in range(EPOCHS):
        state, loss = run_epoch(state, train_x, train_y, rng, augment)
        correct = sum(eval_step(state, test_x[s:s + 100], test_y[s:s + 100]) for s in range(0, 400, 100))
        print(f"epoch {epoch}  loss {loss:.3f}  test accuracy {int(correct) / 400:.3f}", flush=True)
        jax.clear_caches()
        gc.collect()


if __name__ == "__main__":
    main()
