"""Keyword spotting on synthetic one-second tones: log-mel features, SpecAugment, a small 1-D convolutional net (flax.linen)."""
from dataclasses import dataclass
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state


@dataclass(frozen=True)
class Config:
    rate: int = 4000
    n_fft: int = 128
    hop: int = 50
    mels: int = 32
    classes: int = 8
    clips: int = 640
    batch: int = 64
    epochs: int = 6
    max_freq_mask: int = 5
    time_mask: int = 14


CFG = Config()


def synth_clips(rng, n):
    t = np.arange(CFG.rate) / CFG.rate
    labels = rng.integers(0, CFG.classes, n)
    f0 = 200.0 + 90.0 * labels[:, None]
    sweep = np.where(labels % 2 == 0, 1.0, -1.0)[:, None] * rng.uniform(80, 160, (n, 1))
    clips = np.sin(2 * np.pi * (f0 * t + 0.5 * sweep * t**2)) * np.hanning(CFG.rate)
    clips += 0.5 * np.sin(4 * np.pi * f0 * t) + rng.normal(0, 2.5, clips.shape)
    return clips.astype(np.float32), labels.astype(np.int32)


def mel_bank():
    hz = lambda m: 700.0 * (10 ** (m / 2595.0) - 1.0)
    edges = hz(np.linspace(0, 2595 * np.log10(1 + CFG.rate / 2 / 700.0), CFG.mels + 2))
    bins = np.linspace(0, CFG.rate / 2, CFG.n_fft // 2 + 1)
    up = (bins[None] - edges[:-2, None]) / (edges[1:-1, None] - edges[:-2, None])
    down = (edges[2:, None] - bins[None]) / (edges[2:, None] - edges[1:-1, None])
    return np.maximum(0, np.minimum(up, down)).astype(np.float32)


BANK = mel_bank()
WINDOW = np.hanning(CFG.n_fft).astype(np.float32)


def log_mel(clip):
    """One clip -> [frames, mels], normalised."""
    frames = []
    for start in range(0, len(clip) - CFG.n_fft + 1, CFG.hop):
        power = np.abs(np.fft.rfft(clip[start:start + CFG.n_fft] * WINDOW)) ** 2
        frames.append(np.log(BANK @ power + 1e-3))
    feats = np.stack(frames).astype(np.float32)
    return (feats - feats.mean()) / feats.std()


class Clips:
    def __init__(self, rng, n):
        self.audio, self.labels = synth_clips(rng, n)

    def __len__(self):
        return len(self.audio)

    def __getitem__(self, i):
        return log_mel(self.audio[i]), self.labels[i]


def batches(data, rng, shuffle):
    order = rng.permutation(len(data)) if shuffle else np.arange(len(data))
    for s in range(0, len(order) - CFG.batch + 1, CFG.batch):
        feats, labels = zip(*(data[i] for i in order[s:s + CFG.batch]))
        yield np.stack(feats), np.stack(labels)


class Spotter(nn.Module):
    @nn.compact
    def __call__(self, x, train: bool):
        for width in (24, 32):
            x = nn.relu(nn.LayerNorm()(nn.Conv(width, (5,), strides=(2,))(x)))
        x = nn.Dropout(0.2, deterministic=not train)(x.mean(1))
        return nn.Dense(CFG.classes)(x)


@partial(jax.jit, static_argnames="f_width", donate_argnums=0)
def train_step(state, feats, labels, key, f_width):
    k_f, k_t, k_d = jax.random.split(key, 3)
    b, frames, mels = feats.shape
    f0 = jax.random.randint(k_f, (b, 1, 1), 0, mels - f_width)
    t0 = jax.random.randint(k_t, (b, 1, 1), 0, frames - CFG.time_mask)
    f, t = jnp.arange(mels)[None, None], jnp.arange(frames)[None, :, None]
    hide = ((f >= f0) & (f < f0 + f_width)) | ((t >= t0) & (t < t0 + CFG.time_mask))

    def loss_fn(params):
        logits = state.apply_fn(params, jnp.where(hide, 0.0, feats), True, rngs={"dropout": k_d})
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


@jax.jit
def correct(state, feats, labels):
    return (state.apply_fn(state.params, feats, False).argmax(-1) == labels).sum()


rng = np.random.default_rng(1)
train, test = Clips(rng, CFG.clips), Clips(rng, 128)
model = Spotter()
params = model.init(jax.random.key(0), np.zeros((1, 78, CFG.mels), np.float32), False)
state = train_state.TrainState.create(apply_fn=model.apply, params=params, tx=optax.adamw(3e-3))
key = jax.random.key(7)
for epoch in range(CFG.epochs):
    losses = []
    for feats, labels in batches(train, rng, shuffle=True):
        key, sub = jax.random.split(key)
        f_width = int(rng.integers(1, CFG.max_freq_mask + 1))
        state, loss = train_step(state, feats, labels, sub, f_width)
        losses.append(loss)
    hits = sum(correct(state, f, y) for f, y in batches(test, rng, shuffle=False))
    print(f"epoch {epoch}: loss {float(jnp.stack(losses).mean()):.3f}, test accuracy {int(hits) / len(test):.3f}")
