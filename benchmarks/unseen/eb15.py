# %% [markdown]
# Acoustic echo cancellation in blocks: a partitioned frequency-domain adaptive
# filter (PBFDAF) with a Kalman-like step size, followed by a residual suppressor.

# %%
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

RATE, HOP, PARTS = 16_000, 256, 12
SECONDS = 14

rng = np.random.default_rng(12)


# %% Synthetic far end, room and near end
def speechlike(n, rng, burst=0.6):
    """Coloured noise with syllable-like bursts."""
    white = rng.standard_normal(n)
    spec = np.fft.rfft(white)
    f = np.fft.rfftfreq(n, 1 / RATE)
    spec *= 1 / (1 + (f / 900.0) ** 2) + 0.3 * np.exp(-((f - 2300) / 300) ** 2)
    gate = np.repeat(rng.random(n // 2400 + 1) < burst, 2400)[:n]
    gate = np.convolve(gate, np.hanning(800) / 400, "same")
    x = np.fft.irfft(spec, n) * gate
    return (0.2 * x / x.std()).astype(np.float32)


n = SECONDS * RATE // HOP * HOP
far = speechlike(n, rng)
near = speechlike(n, rng, burst=0.15) * (np.arange(n) > n // 2)
room = rng.standard_normal(2600) * np.exp(-np.arange(2600) / 500.0) * 0.15
echo = np.convolve(far, room)[:n]
mic = (echo + near + 0.002 * rng.standard_normal(n)).astype(np.float32)


# %% The filter
class State(NamedTuple):
    weights: jax.Array          # (parts, bins), complex
    spectra: jax.Array          # (parts, bins), complex: the last far-end blocks
    previous: jax.Array         # (hop,)
    cov: jax.Array              # (parts, bins)
    noise: jax.Array            # (bins,)


def init():
    bins = HOP + 1
    return State(jnp.zeros((PARTS, bins), jnp.complex64), jnp.zeros((PARTS, bins), jnp.complex64),
                 jnp.zeros(HOP), jnp.ones((PARTS, bins)) * 0.1, jnp.ones(bins) * 1e-2)


@jax.jit
def filter_block(state, x, d):
    both = jnp.concatenate([state.previous, x])
    spectra = jnp.roll(state.spectra, 1, 0).at[0].set(jnp.fft.rfft(both))
    y = jnp.fft.irfft((state.weights * spectra).sum(0))[HOP:]
    e = d - y
    err = jnp.fft.rfft(jnp.concatenate([jnp.zeros(HOP), e]))
    noise = 0.9 * state.noise + 0.1 * jnp.abs(err) ** 2
    power = jnp.abs(spectra) ** 2
    gain = state.cov / ((power * state.cov).sum(0) + 2 * noise + 1e-6)
    update = jnp.fft.irfft(gain * spectra.conj() * err)
    update = jnp.fft.rfft(update.at[:, HOP:].set(0.0), axis=-1)
    weights = state.weights + update
    cov = (1 - 0.5 * gain * power) * state.cov * 0.998 + 0.002 * jnp.abs(weights) ** 2 + 1e-7
    return State(weights, spectra, x, cov, noise), e, y


@jax.jit
def suppress(e, y, floor):
    """Spectral subtraction of the residual echo, one block at a time."""
    es, ys = jnp.fft.rfft(e), jnp.fft.rfft(y)
    gain = jnp.abs(es) ** 2 / (jnp.abs(es) ** 2 + 0.05 * jnp.abs(ys) ** 2 + 1e-6)
    return jnp.fft.irfft(jnp.maximum(gain, floor) * es)


@jax.jit
def level(x):
    return 10 * jnp.log10(jnp.mean(x ** 2) + 1e-9)


# %% Stream the recording through
class Recorder:
    """Keeps the cleaned signal and the level of the last second."""

    def __init__(self):
        self.audio = jnp.zeros(0)
        self.erle = []

    def push(self, block, d):
        self.audio = jnp.concatenate([self.audio, block])
        self.erle.append(level(d) - level(block))

    def recent(self):
        k = RATE // HOP
        return float(jnp.stack(self.erle[-k:]).mean())


state, out = init(), Recorder()
for b in range(n // HOP):
    part = slice(b * HOP, (b + 1) * HOP)
    state, e, y = filter_block(state, far[part], mic[part])
    out.push(suppress(e, y, 0.1), mic[part])
    if (b + 1) % 125 == 0:
        print(f"{(b + 1) * HOP / RATE:5.1f} s: echo reduced by {out.recent():5.1f} dB")

# %% Judge the result
clean = np.asarray(out.audio)
quiet = slice(n // 4, n // 2)
print(f"far end only: microphone {10 * np.log10((mic[quiet] ** 2).mean()):.1f} dB, "
      f"output {10 * np.log10((clean[quiet] ** 2).mean()):.1f} dB")
talk = slice(n // 2, n)
corr = np.corrcoef(clean[talk], near[talk])[0, 1]
print(f"double talk: correlation with the near end {corr:.3f} "
      f"(microphone {np.corrcoef(mic[talk], near[talk])[0, 1]:.3f})")
