"""Bird call recogniser on short log-mel clips (flax.nnx), label smoothing annealed over the epochs,
evaluation with a snapshot ensemble."""
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

SPECIES = 12
FRAMES, MELS = 48, 20
EPOCHS = 8
BATCH = 48


def make_clips(rng, n):
    labels = rng.integers(0, SPECIES, n)
    t = np.arange(FRAMES)[:, None]
    f = np.arange(MELS)[None, :]
    clips = np.empty((n, FRAMES, MELS), np.float32)
    for i, c in enumerate(labels):
        centre = MELS / 2 + 5 * np.sin(2 * np.pi * (t / FRAMES) * (1 + c % 4) + c) + (c // 4) - 1
        clips[i] = np.exp(-0.5 * ((f - centre) / 1.3) ** 2) + 0.3 * rng.standard_normal((FRAMES, MELS))
    return clips, labels.astype(np.int32)


class Block(nnx.Module):
    def __init__(self, cin, cout, rngs):
        self.conv = nnx.Conv(cin, cout, kernel_size=(5,), strides=(2,), rngs=rngs)
        self.norm = nnx.BatchNorm(cout, momentum=0.9, rngs=rngs)

    def __call__(self, x):
        return nnx.relu(self.norm(self.conv(x)))


class CallNet(nnx.Module):
    def __init__(self, width, rngs):
        self.stem = Block(MELS, width, rngs)
        self.last = Block(width, 2 * width, rngs)
        self.drop = nnx.Dropout(0.1, rngs=rngs)
        self.head = nnx.Linear(2 * width, SPECIES, rngs=rngs)

    def __call__(self, x):
        x = self.last(self.stem(x))
        return self.head(self.drop(x.mean(axis=1)))

    def loss(self, x, y, smoothing):
        logits = self(x)
        target = optax.smooth_labels(jax.nn.one_hot(y, SPECIES), smoothing)
        return optax.softmax_cross_entropy(logits, target).mean(), logits


@nnx.jit
def train_step(model, optimizer, metrics, x, y, smoothing):
    (loss, logits), grads = nnx.value_and_grad(lambda m: m.loss(x, y, smoothing), has_aux=True)(model)
    optimizer.update(model, grads)
    metrics.update(loss=loss, logits=logits, labels=y)


@jax.jit
def augment(key, x):
    """Gain, circular time shift and one masked band, for each clip."""
    k_gain, k_shift, k_band = jax.random.split(key, 3)
    gain = jnp.exp(0.1 * jax.random.normal(k_gain, (x.shape[0], 1, 1)))
    shift = jax.random.randint(k_shift, (x.shape[0],), -4, 5)
    x = jax.vmap(lambda clip, s: jnp.roll(clip, s, axis=0))(x * gain, shift)
    start = jax.random.randint(k_band, (x.shape[0], 1, 1), 0, MELS - 3)
    band = jnp.arange(MELS)[None, None, :]
    return jnp.where((band >= start) & (band < start + 3), 0.0, x)


@jax.jit
def predicted(graphdef_leaf, params, x):
    model = nnx.merge(graphdef_leaf.value, params)
    model.eval()
    return jax.nn.softmax(model(x))


@jax.jit
def hits(probs, y):
    return (probs.argmax(-1) == y).mean()


@jax.tree_util.register_static
class Definition:
    """A graph definition that may be passed to jit."""

    def __init__(self, value):
        self.value = value

    def __hash__(self):
        return hash(self.value)

    def __eq__(self, other):
        return isinstance(other, Definition) and self.value == other.value


def main():
    rng = np.random.default_rng(3)
    train_x, train_y = make_clips(rng, 768)
    test_x, test_y = make_clips(rng, 240)

    model = CallNet(24, nnx.Rngs(0))
    definition = Definition(nnx.graphdef(model))
    optimizer = nnx.Optimizer(model, optax.adam(2e-3), wrt=nnx.Param)
    metrics = nnx.MultiMetric(accuracy=nnx.metrics.Accuracy(), loss=nnx.metrics.Average("loss"))
    key = jax.random.key(1)
    total = np.zeros((len(test_x), SPECIES), np.float32)  # of all snapshots
    for epoch in range(EPOCHS):
        start = time.perf_counter()
        model.train()
        smoothing = np.float32(0.2 * (1 - epoch / EPOCHS))
        order = rng.permutation(len(train_x))
        for i in range(0, len(order) - BATCH + 1, BATCH):
            idx = order[i:i + BATCH]
            key, sub = jax.random.split(key)
            x = augment(sub, jnp.asarray(train_x[idx]))
            train_step(model, optimizer, metrics, x, train_y[idx], smoothing)
        total += np.asarray(predicted(definition, nnx.state(model), test_x))
        accuracy = hits(total, test_y)
        stats = metrics.compute()
        metrics.reset()
        print(f"epoch {epoch:2d}  loss {float(stats['loss']):.3f}  train {float(stats['accuracy']):.3f}  "
              f"ensemble {float(accuracy):.3f}  {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
