"""Keyword spotting on synthetic audio: log-mel features, SpecAugment, a small conv net (equinox)."""
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

RATE, SECONDS, WORDS = 4000, 0.6, 8
FRAME, HOP, MELS = 128, 64, 20
SAMPLES = int(RATE * SECONDS)


def synth(n, seed):
    """A 'word' is a pair of gliding tones; speakers differ in pitch, timing and loudness."""
    rng = np.random.default_rng(seed)
    tones = np.random.default_rng(99).uniform(250, 1500, (WORDS, 3))
    label = rng.integers(0, WORDS, n)
    t = np.arange(SAMPLES) / RATE
    f = tones[label] * rng.uniform(0.9, 1.1, (n, 1))
    shift = rng.uniform(0.2, 0.4, (n, 1))
    freq = np.where(t < shift, f[:, :1], f[:, 1:2]) + (f[:, 2:] - f[:, :1]) * t
    wave = np.sin(2 * np.pi * np.cumsum(freq, axis=1) / RATE) * rng.uniform(0.5, 1.5, (n, 1))
    return (wave + 0.7 * rng.normal(size=wave.shape)).astype(np.float32), label.astype(np.int32)


def mel_bank():
    mel = np.linspace(0, 2595 * np.log10(1 + RATE / 2 / 700), MELS + 2)
    hz = 700 * (10 ** (mel / 2595) - 1)
    bins = np.fft.rfftfreq(FRAME, 1 / RATE)
    up = (bins - hz[:-2, None]) / (hz[1:-1] - hz[:-2])[:, None]
    down = (hz[2:, None] - bins) / (hz[2:] - hz[1:-1])[:, None]
    return np.maximum(0, np.minimum(up, down)).astype(np.float32)


BANK = mel_bank()
WINDOW = np.hanning(FRAME).astype(np.float32)


def log_mel(wave):
    """Features of one clip: (frames, mels)."""
    frames = []
    for lo in range(0, len(wave) - FRAME + 1, HOP):
        frames.append(np.fft.rfft(wave[lo : lo + FRAME] * WINDOW))
    power = np.abs(np.stack(frames)) ** 2
    return np.log(power @ BANK.T + 1e-3).astype(np.float32)


def spec_augment(spec, rng):
    spec = spec.copy()
    t0, f0 = rng.integers(0, len(spec) - 5), rng.integers(0, MELS - 3)
    spec[t0 : t0 + 5] = spec.mean()
    spec[:, f0 : f0 + 3] = spec.mean()
    return spec


class Clips:
    """Dataset; computes the features of a clip when it is asked for."""

    def __init__(self, waves, labels, augment, seed=0):
        self.waves, self.labels, self.augment = waves, labels, augment
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, i):
        spec = log_mel(self.waves[i])
        return (spec_augment(spec, self.rng) if self.augment else spec), self.labels[i]

    def batches(self, size, shuffle):
        order = self.rng.permutation(len(self)) if shuffle else np.arange(len(self))
        for lo in range(0, len(order) - size + 1, size):
            specs, labels = zip(*(self[i] for i in order[lo : lo + size]))
            yield np.stack(specs), np.array(labels)


class Net(eqx.Module):
    convs: list
    head: eqx.nn.Linear

    def __init__(self, key):
        k = jax.random.split(key, 4)
        dims = [MELS, 32, 32, 48]
        self.convs = [eqx.nn.Conv1d(a, b, 3, stride=2, padding=1, key=k[i]) for i, (a, b) in enumerate(zip(dims, dims[1:]))]
        self.head = eqx.nn.Linear(48, WORDS, key=k[3])

    def __call__(self, spec):
        x = spec.T
        for conv in self.convs:
            x = jax.nn.relu(conv(x))
        return self.head(x.mean(axis=1))


def loss_fn(model, spec, label):
    logits = jax.vmap(model)((spec + 2.0) / 3.0)
    return optax.softmax_cross_entropy_with_integer_labels(logits, label).mean()


@eqx.filter_jit
def train_step(model, opt, spec, label, lr):
    loss, grads = eqx.filter_value_and_grad(loss_fn)(model, spec, label)
    upd, opt = optax.scale_by_adam().update(grads, opt)
    return eqx.apply_updates(model, jax.tree.map(lambda u: -lr * u, upd)), opt, loss


@eqx.filter_jit
def hits(model, spec, label):
    return jnp.mean(jax.vmap(model)((spec + 2.0) / 3.0).argmax(-1) == label)


def main(epochs=6, batch=64):
    train = Clips(*synth(768, 0), augment=True)
    test = Clips(*synth(256, 1), augment=False)
    model = Net(jax.random.key(0))
    opt = optax.scale_by_adam().init(eqx.filter(model, eqx.is_array))
    for epoch in range(epochs):
        start, lr = time.perf_counter(), 4e-3 * 0.8**epoch
        losses = []
        for spec, label in train.batches(batch, shuffle=True):
            model, opt, loss = train_step(model, opt, spec, label, lr)
            losses.append(loss)
        acc = np.mean([hits(model, s, y) for s, y in test.batches(batch, shuffle=False)])
        print(f"epoch {epoch:2d}: loss {float(jnp.stack(losses).mean()):.3f}  accuracy {acc:.3f}  {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
