"""Keyword spotting on synthetic speech-like sounds: log-mel features and a 1-d convolutional net in Equinox."""
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

RATE, SECONDS, KEYWORDS = 8000, 0.6, 8
FRAME, HOP, MELS = 256, 128, 32


def synth_words(n, rng):
    """Each keyword is a fixed sequence of three formant pairs; speakers differ in pitch, speed and noise."""
    table = np.random.default_rng(99).uniform(250, 2800, (KEYWORDS, 3, 2))
    t = np.arange(int(RATE * SECONDS)) / RATE
    labels = rng.integers(0, KEYWORDS, n)
    waves = np.empty((n, t.size), np.float32)
    for i, k in enumerate(labels):
        warp = np.clip((t / SECONDS) * rng.uniform(0.8, 1.25) + rng.uniform(-0.1, 0.1), 0, 0.999)
        formants = table[k][(warp * 3).astype(int)] * rng.uniform(0.9, 1.1)
        phase = 2 * np.pi * np.cumsum(formants, 0) / RATE
        waves[i] = np.sin(phase).sum(1) + rng.normal(0, rng.uniform(0.5, 1.6), t.size)
    return waves, labels.astype(np.int32)


def mel_filters():
    to_mel = lambda f: 2595 * np.log10(1 + f / 700)
    edges = 700 * (10 ** (np.linspace(0, to_mel(RATE / 2), MELS + 2) / 2595) - 1)
    freqs = np.fft.rfftfreq(FRAME, 1 / RATE)
    up = (freqs[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2])
    down = (edges[2:] - freqs[:, None]) / (edges[2:] - edges[1:-1])
    return jnp.asarray(np.maximum(0, np.minimum(up, down)), jnp.float32)


FILTERS, WINDOW = mel_filters(), jnp.hanning(FRAME)


def log_mel(wave):
    starts = range(0, len(wave) - FRAME + 1, HOP)
    frames = jnp.stack([wave[s:s + FRAME] for s in starts])
    power = jnp.abs(jnp.fft.rfft(frames * WINDOW)) ** 2
    feats = jnp.log(power @ FILTERS + 1e-3)
    return (feats - feats.mean()) / feats.std()


class SpotNet(eqx.Module):
    convs: list
    norms: list
    head: eqx.nn.Linear
    dropout: eqx.nn.Dropout

    def __init__(self, key, widths=(MELS, 48, 48, 64)):
        k = jr.split(key, len(widths))
        self.convs = [eqx.nn.Conv1d(a, b, 5, stride=2, padding=2, key=kk) for a, b, kk in zip(widths, widths[1:], k)]
        self.norms = [eqx.nn.GroupNorm(4, b) for b in widths[1:]]
        self.head = eqx.nn.Linear(widths[-1], KEYWORDS, key=k[-1])
        self.dropout = eqx.nn.Dropout(0.2)

    def __call__(self, feats, key=None, inference=False):
        x = feats.T
        for conv, norm in zip(self.convs, self.norms):
            x = jax.nn.gelu(norm(conv(x)))
        return self.head(self.dropout(x.mean(-1), key=key, inference=inference))


def mask_time(feats, key, width):
    """SpecAugment: blank `width` consecutive frames."""
    start = jr.randint(key, (), 0, feats.shape[0] - 10)
    t = jnp.arange(feats.shape[0])[:, None]
    return jnp.where((t >= start) & (t < start + width), 0.0, feats)


optimizer = optax.adamw(2e-3, weight_decay=1e-3)


@eqx.filter_jit
def train_step(model, opt_state, feats, labels, key, width, smoothing):
    def loss_fn(m):
        keys = jr.split(key, (2, feats.shape[0]))
        masked = jax.vmap(mask_time, (0, 0, None))(feats, keys[0], width)
        logits = jax.vmap(m)(masked, keys[1])
        goal = optax.smooth_labels(jax.nn.one_hot(labels, KEYWORDS), smoothing)
        return optax.softmax_cross_entropy(logits, goal).mean()
    loss, grads = eqx.filter_value_and_grad(loss_fn)(model)
    updates, opt_state = optimizer.update(grads, opt_state, eqx.filter(model, eqx.is_inexact_array))
    return eqx.apply_updates(model, updates), opt_state, loss


@eqx.filter_jit
def accuracy(model, feats, labels):
    logits = jax.vmap(lambda f: model(f, inference=True))(feats)
    return (logits.argmax(-1) == labels).mean()


if __name__ == "__main__":
    rng, key = np.random.default_rng(4), jr.key(0)
    start = time.time()
    waves, labels = synth_words(600, rng)
    feats = jax.jit(jax.vmap(log_mel))(waves)      # once, for all clips
    train_f, train_y, test_f, test_y = feats[:450], labels[:450], feats[450:], labels[450:]
    print(f"features {feats.shape} in {time.time() - start:.1f} s")
    model = SpotNet(jr.key(1))
    opt_state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
    epochs = 7
    for epoch in range(epochs):
        # the regularisation grows while the net learns
        width, smoothing = min(2 + epoch, 10), 0.1 * epoch / epochs
        order, losses = rng.permutation(len(train_f)), []
        for s in range(0, len(order) - 49, 50):
            key, sub = jr.split(key)
            idx = order[s:s + 50]
            model, opt_state, loss = train_step(model, opt_state, train_f[idx], train_y[idx], sub, width, smoothing)
            losses.append(loss)
        print(f"epoch {epoch:2d}  loss {float(sum(losses)) / len(losses):.3f}  "
              f"test {float(accuracy(model, test_f, test_y)):.3f}  {time.time() - start:.1f} s")
