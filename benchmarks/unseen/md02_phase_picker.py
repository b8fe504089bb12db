"""Seismic phase picking: an equinox encoder-decoder marks P and S onsets in 3-component windows.

The P and S losses are balanced while training: whichever falls behind gets more weight
(a simplified GradNorm).
"""
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

LENGTH = 512
BATCH = 16


def make_events(n, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(LENGTH)
    p = rng.integers(60, 200, n)
    s = p + rng.integers(60, 220, n)
    wave = 0.1 * rng.normal(size=(n, 3, LENGTH))
    for i in range(n):
        for onset, gain, freq in ((p[i], 0.6, 0.35), (s[i], 1.2, 0.18)):
            dt = np.clip(t - onset, 0, None)
            burst = gain * np.exp(-dt / 50) * np.sin(freq * dt) * (t >= onset)
            wave[i] += rng.uniform(0.4, 1.0, (3, 1)) * burst
    target = np.stack([np.exp(-((t - p[:, None]) / 6) ** 2),
                       np.exp(-((t - s[:, None]) / 6) ** 2)], 1)
    return wave.astype(np.float32), target.astype(np.float32), np.stack([p, s], 1)


class ConvBlock(eqx.Module):
    conv: eqx.nn.Conv1d
    norm: eqx.nn.GroupNorm

    def __init__(self, cin, cout, stride, key):
        self.conv = eqx.nn.Conv1d(cin, cout, 7, stride=stride, padding=3, key=key)
        self.norm = eqx.nn.GroupNorm(4, cout)

    def __call__(self, x):
        return jax.nn.relu(self.norm(self.conv(x)))


class Picker(eqx.Module):
    down: list
    up: list
    head: eqx.nn.Conv1d

    def __init__(self, key):
        k = jax.random.split(key, 8)
        self.down = [ConvBlock(3, 8, 1, k[0]), ConvBlock(8, 12, 2, k[1]),
                     ConvBlock(12, 16, 2, k[2]), ConvBlock(16, 24, 2, k[3])]
        self.up = [ConvBlock(24 + 16, 16, 1, k[4]), ConvBlock(16 + 12, 12, 1, k[5]),
                   ConvBlock(12 + 8, 8, 1, k[6])]
        self.head = eqx.nn.Conv1d(8, 2, 1, key=k[7])

    def __call__(self, x):
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
        for block, skip in zip(self.up, skips[-2::-1]):
            x = jnp.concatenate([jnp.repeat(x, 2, axis=-1), skip])
            x = block(x)
        return self.head(x)


class Balancer(eqx.Module):
    """Weights of the phase losses, updated from their running means."""

    w_p: float = 1.0
    w_s: float = 1.0
    rate: float = 0.3

    def update(self, history):
        mean_p, mean_s = np.mean(history, axis=0)
        share = mean_p / (mean_p + mean_s)
        w_p = (1 - self.rate) * self.w_p + self.rate * 2 * share
        return eqx.tree_at(lambda b: (b.w_p, b.w_s), self, (float(w_p), float(2 - w_p)))

    def __call__(self, losses):
        return self.w_p * losses[0] + self.w_s * losses[1]


def phase_losses(model, x, y):
    logits = jax.vmap(model)(x)
    bce = optax.sigmoid_binary_cross_entropy(logits, y) * (1 + 10 * y)
    return bce.mean(axis=(0, 2))


optim = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(2e-3))


@eqx.filter_jit
def train_step(model, opt_state, balancer, x, y):
    def objective(m):
        losses = phase_losses(m, x, y)
        return balancer(losses), losses

    (_, losses), grads = eqx.filter_value_and_grad(objective, has_aux=True)(model)
    updates, opt_state = optim.update(grads, opt_state)
    return eqx.apply_updates(model, updates), opt_state, losses


@eqx.filter_jit
def pick(model, x):
    return jnp.argmax(jax.vmap(model)(x), axis=-1)


def main():
    wave, target, _ = make_events(384, 0)
    test_wave, _, test_onsets = make_events(96, 1)
    model = Picker(jax.random.key(0))
    opt_state = optim.init(eqx.filter(model, eqx.is_inexact_array))
    balancer = Balancer()
    rng = np.random.default_rng(2)
    history = []
    for step in range(96):
        idx = rng.integers(0, len(wave), BATCH)
        model, opt_state, losses = train_step(model, opt_state, balancer, wave[idx], target[idx])
        history.append(losses)
        if (step + 1) % 24 == 0:
            balancer = balancer.update(jax.device_get(history))
            err = np.abs(np.asarray(pick(model, test_wave)) - test_onsets)
            print(f"step {step + 1:4d} w_p {balancer.w_p:.3f} P {np.median(err[:, 0]):.1f} "
                  f"S {np.median(err[:, 1]):.1f} samples", flush=True)
            history = []


if __name__ == "__main__":
    main()
