"""P-wave picker on three-component seismograms, learning rate halved on plateaus (flax.linen)."""
import io
import pathlib
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.training import train_state

SAMPLES = 128
BATCH = 32
EPOCHS = 10
STEPS = 25
BASE_LR = 1e-2
PATIENCE = 1


class Picker(nn.Module):
    channels: tuple = (8, 12)

    @nn.compact
    def __call__(self, traces):
        x = traces
        for c in self.channels:
            x = nn.relu(nn.Conv(c, (7,), strides=(2,))(x))
        x = nn.Dense(96)(x.reshape(x.shape[0], -1))
        return nn.Dense(SAMPLES)(nn.relu(x))


class TrainState(train_state.TrainState):
    ema: dict


class Plateau:
    """Halves the learning rate when the validation loss has not improved."""

    def __init__(self, lr, patience, min_delta=0.05):
        self.lr, self.patience, self.min_delta = lr, patience, min_delta
        self.best, self.bad = np.inf, 0

    def update(self, value):
        if value < self.best - self.min_delta:
            self.best, self.bad = value, 0
            return False
        self.bad += 1
        if self.bad < self.patience:
            return False
        self.lr, self.bad = self.lr / 2, 0
        return True


class Checkpointer:
    """Keeps every snapshot of a run, compressed, with the optimizer's moments."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.written = 0

    def save(self, state, step):
        leaves = jax.tree_util.tree_leaves((state.params, state.ema, state.opt_state))
        buffer = io.BytesIO()
        np.savez(buffer, *[np.asarray(leaf) for leaf in leaves])
        (self.folder / f"step_{step:05d}.npz").write_bytes(buffer.getvalue())
        self.written += buffer.tell()


def make_events(rng, n):
    onset = rng.integers(16, SAMPLES - 32, size=n)
    t = np.arange(SAMPLES)[None] - onset[:, None]
    freq = rng.uniform(0.05, 0.2, size=(n, 1))
    wave = np.where(t >= 0, np.exp(-np.maximum(t, 0) / 20.0) * np.sin(2 * np.pi * freq * t + 0.5), 0.0)
    gain = rng.uniform(0.5, 1.5, size=(n, 1, 3))
    traces = wave[..., None] * gain + rng.normal(0, 0.15, size=(n, SAMPLES, 3))
    return traces.astype(np.float32), onset.astype(np.int32)


def make_optimizer(lr):
    adamw = optax.inject_hyperparams(optax.adamw)(learning_rate=jnp.float32(lr), weight_decay=1e-4)
    return optax.chain(optax.clip_by_global_norm(1.0), adamw)


def create_state(seed):
    model = Picker()
    params = jax.jit(model.init)(jax.random.key(seed), jnp.zeros((1, SAMPLES, 3)))["params"]
    return TrainState.create(apply_fn=model.apply, params=params, tx=make_optimizer(BASE_LR), ema=params)


def pick_loss(logits, onset):
    return optax.softmax_cross_entropy_with_integer_labels(logits, onset).mean()


@jax.jit
def train_step(state, traces, onset):
    def loss_fn(params):
        return pick_loss(state.apply_fn({"params": params}, traces), onset)

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    state = state.apply_gradients(grads=grads)
    ema = jax.tree.map(lambda e, p: 0.98 * e + 0.02 * p, state.ema, state.params)
    return state.replace(ema=ema), loss


def make_eval(apply_fn):
    @jax.jit
    def evaluate(params, traces, onset):
        logits = apply_fn({"params": params}, traces)
        within = jnp.abs(logits.argmax(-1) - onset) <= 3
        return pick_loss(logits, onset), within.mean()

    return evaluate


def main():
    rng = np.random.default_rng(23)
    train_x, train_y = make_events(rng, 1600)
    val = jax.device_put(make_events(rng, 256))
    state = create_state(23)
    evaluate = make_eval(state.apply_fn)
    plateau = Plateau(BASE_LR, PATIENCE)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpointer(folder)
        step = 0
        for epoch in range(EPOCHS):
            t0 = time.perf_counter()
            for _ in range(STEPS):
                idx = rng.integers(0, len(train_x), size=BATCH)
                state, loss = train_step(state, train_x[idx], train_y[idx])
                step += 1
            if epoch % 5 == 4:
                checkpoints.save(state, step)
            val_loss, hit = (float(v) for v in evaluate(state.ema, *val))
            if plateau.update(val_loss):
                state.opt_state[1].hyperparams["learning_rate"] = jnp.asarray(plateau.lr, jnp.float32)
            print(f"epoch {epoch:2d} loss {float(loss):.3f} val {val_loss:.3f} within 3 samples {hit:.2f} "
                  f"lr {plateau.lr:.1e} ({time.perf_counter() - t0:.1f}s)")
        print(f"{checkpoints.written / 2 ** 20:.1f} MiB of checkpoints")


if __name__ == "__main__":
    main()
