"""Heartbeat classification on MIT-BIH-like single lead beats (187 samples, 5 AAMI classes).

A small 1-D residual network in flax.linen. Dropout is annealed over the epochs, because the
rare classes (S, F) are underfitted when it stays high.
"""
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.training import train_state

CLASSES = ["N", "S", "V", "F", "Q"]
BEAT = 187
BATCH = 128
EPOCHS = 4


def synth_beats(n, seed):
    """Sum of Gaussians for P, QRS and T; every class moves or widens some of them."""
    rng = np.random.default_rng(seed)
    y = rng.choice(5, size=n, p=[0.5, 0.15, 0.15, 0.1, 0.1])
    t = np.linspace(0, 1, BEAT, dtype=np.float32)[None]
    p_amp = np.where(y == 1, -0.1, 0.2)[:, None] + 0.03 * rng.normal(size=(n, 1))
    qrs_w = np.where(y == 2, 0.06, 0.02)[:, None] * (1 + 0.1 * rng.normal(size=(n, 1)))
    qrs_a = np.where(y == 3, 0.6, 1.0)[:, None] + 0.1 * rng.normal(size=(n, 1))
    t_amp = np.where(y == 4, -0.3, 0.3)[:, None] + 0.05 * rng.normal(size=(n, 1))
    x = (p_amp * np.exp(-((t - 0.25) / 0.03) ** 2)
         + qrs_a * np.exp(-((t - 0.45) / qrs_w) ** 2)
         + t_amp * np.exp(-((t - 0.7) / 0.06) ** 2)
         + 0.12 * rng.normal(size=(n, BEAT)))
    return x.astype(np.float32)[..., None], y.astype(np.int32)


class ResBlock(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        h = nn.relu(nn.LayerNorm()(nn.Conv(self.width, (5,))(x)))
        h = nn.LayerNorm()(nn.Conv(self.width, (5,))(h))
        if x.shape[-1] != self.width:
            x = nn.Dense(self.width)(x)
        return nn.max_pool(nn.relu(x + h), (3,), strides=(2,))


class BeatNet(nn.Module):
    @nn.compact
    def __call__(self, x, train, drop=0.0):
        for width in (8, 16):
            x = ResBlock(width)(x)
        x = x.reshape((x.shape[0], -1))
        x = nn.relu(nn.Dense(64)(x))
        if train:
            keep = 1.0 - drop
            mask = jax.random.bernoulli(self.make_rng("dropout"), keep, x.shape)
            x = jnp.where(mask, x / keep, 0.0)
        return nn.Dense(len(CLASSES))(x)


model = BeatNet()


def create_state(key, steps):
    params = model.init(key, jnp.zeros((1, BEAT, 1)), False)["params"]
    tx = optax.adamw(optax.cosine_decay_schedule(2e-3, steps), weight_decay=1e-4)
    return train_state.TrainState.create(apply_fn=model.apply, params=params, tx=tx)


def anneal(state, epoch):
    """Linear decay of the dropout from 0.5 to 0.1."""
    drop = 0.5 - 0.4 * epoch / (EPOCHS - 1)
    return state.replace(apply_fn=functools.partial(model.apply, drop=drop))


def focal_loss(logits, y, gamma=2.0):
    logp = jax.nn.log_softmax(logits)
    picked = jnp.take_along_axis(logp, y[:, None], axis=1)[:, 0]
    return -jnp.mean((1 - jnp.exp(picked)) ** gamma * picked)


@jax.jit
def train_step(state, x, y, key):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, x, True, rngs={"dropout": key})
        return focal_loss(logits, y)

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


@jax.jit
def predict(state, x):
    return jnp.argmax(state.apply_fn({"params": state.params}, x, False), axis=-1)


def confusion(pred, truth):
    cm = np.zeros((len(CLASSES), len(CLASSES)), int)
    for i in range(len(truth)):
        cm[truth[i], int(pred[i])] += 1
    return cm


def main():
    x_train, y_train = synth_beats(1024, 0)
    x_test, y_test = synth_beats(10000, 1)
    x_test = jnp.asarray(x_test)
    steps = len(x_train) // BATCH
    key = jax.random.key(3)
    state = create_state(key, steps * EPOCHS)
    rng = np.random.default_rng(5)
    for epoch in range(EPOCHS):
        state = anneal(state, epoch)
        order = rng.permutation(len(x_train))
        total = 0.0
        for b in range(steps):
            idx = order[b * BATCH:(b + 1) * BATCH]
            key, sub = jax.random.split(key)
            state, loss = train_step(state, x_train[idx], y_train[idx], sub)
            total += loss
        cm = confusion(predict(state, x_test), y_test)
        recall = cm.diagonal() / cm.sum(1)
        print(f"epoch {epoch:2d} loss {float(total) / steps:.4f} recall "
              + " ".join(f"{c}={r:.2f}" for c, r in zip(CLASSES, recall)))


if __name__ == "__main__":
    main()
