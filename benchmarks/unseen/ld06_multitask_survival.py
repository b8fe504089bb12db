"""Multi-task discrete-time survival analysis for machine parts (flax.nnx + optax).

Three failure modes (bearing, seal, winding) share an encoder over sensor histories. Each mode has a hazard
head over 24 time bins. Learning rate is halved when the validation likelihood stalls.
"""
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

MODES = ("bearing", "seal", "winding")
N_BINS = 24
SENSORS, HISTORY = 10, 32


def simulate_fleet(n, seed):
    rng = np.random.default_rng(seed)
    wear = rng.gamma(2.0, 0.5, (n, 1))
    t = np.linspace(0, 1, HISTORY)
    direction = np.random.default_rng(42).normal(size=(1, SENSORS, 1))
    drift = direction * wear[..., None] * t
    history = drift + 0.4 * rng.normal(size=(n, SENSORS, HISTORY))
    base = np.array([0.5, 0.0, -0.4])
    scale = np.exp(base + 1.0 - 0.7 * wear * np.array([1.0, 0.6, 0.3]))
    event = rng.weibull(1.5, (n, 3)) * scale * 10
    censor = rng.uniform(4, 30, (n, 1))
    observed = (event <= censor).astype(np.float32)
    bins = np.minimum(np.minimum(event, censor), N_BINS - 1).astype(np.int32)
    return history.astype(np.float32), bins, observed


class SensorEncoder(nnx.Module):
    def __init__(self, width, rngs):
        self.conv1 = nnx.Conv(SENSORS, width, (5,), strides=2, rngs=rngs)
        self.conv2 = nnx.Conv(width, width, (5,), strides=2, rngs=rngs)
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.drop = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, history):
        h = nnx.gelu(self.conv1(history.swapaxes(1, 2)))
        h = nnx.gelu(self.conv2(h))
        return self.drop(self.norm(h.mean(1)))


class HazardHead(nnx.Module):
    def __init__(self, width, rngs):
        self.hidden = nnx.Linear(width, width, rngs=rngs)
        self.out = nnx.Linear(width, N_BINS, rngs=rngs)

    def __call__(self, z):
        return self.out(nnx.gelu(self.hidden(z))) - 3.0


class SurvivalNet(nnx.Module):
    def __init__(self, width, rngs):
        self.encoder = SensorEncoder(width, rngs)
        self.heads = nnx.Dict({m: HazardHead(width, rngs) for m in MODES})
        self.log_var = nnx.Param(jnp.zeros(len(MODES)))

    def __call__(self, history):
        z = self.encoder(history)
        return jnp.stack([self.heads[m](z) for m in MODES], 1)


def hazard_nll(logits, bins, observed):
    grid = jnp.arange(N_BINS)
    survived = (grid < bins[..., None]).astype(jnp.float32)
    failed = (grid == bins[..., None]) * observed[..., None]
    return -jnp.sum(survived * jax.nn.log_sigmoid(-logits) + failed * jax.nn.log_sigmoid(logits), -1)


@nnx.jit
def train_batch(model, optimizer, metrics, history, bins, observed):
    def loss_fn(model):
        per_task = hazard_nll(model(history), bins, observed).mean(0)
        weighted = per_task * jnp.exp(-model.log_var[...]) + model.log_var[...]
        return weighted.sum(), per_task

    (_, per_task), grads = nnx.value_and_grad(loss_fn, has_aux=True)(model)
    optimizer.update(model, grads)
    metrics.update(values=per_task.mean())


@nnx.jit
def likelihood(model, history, bins, observed):
    logits = model(history)
    return hazard_nll(logits, bins, observed).mean(0), jnp.cumprod(jax.nn.sigmoid(-logits), -1)


def concordance(curves, bins, observed):
    """Harrell's C on a numpy array of survival curves, one failure mode."""
    risk = -curves.sum(-1)
    earlier = (bins[:, None] < bins[None]) & (observed[:, None] > 0)
    return float(((risk[:, None] > risk[None]) & earlier).sum() / max(earlier.sum(), 1))


class PlateauTrainer:
    """Adam whose rate is lowered on a plateau; momentum is restarted after each evaluation round."""

    def __init__(self, model, rate, patience=2):
        self.model, self.rate, self.patience = model, rate, patience
        self.best, self.stalled = np.inf, 0
        self.restart()

    def restart(self):
        tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(self.rate, weight_decay=1e-4))
        self.optimizer = nnx.Optimizer(self.model, tx, wrt=nnx.Param)

    def report(self, score):
        if score < self.best - 1e-3:
            self.best, self.stalled = score, 0
        else:
            self.stalled += 1
            if self.stalled >= self.patience:
                self.rate, self.stalled = self.rate / 2, 0
        self.restart()


def main(rounds=12, batch=128):
    train, valid = simulate_fleet(4096, 0), simulate_fleet(1024, 1)
    rng = np.random.default_rng(2)
    model = SurvivalNet(48, nnx.Rngs(0))
    evaluator = nnx.view(model, deterministic=True) if hasattr(nnx, "view") else model
    trainer = PlateauTrainer(model, 2e-3)
    metrics = nnx.metrics.Average()
    valid_device = [jnp.asarray(a) for a in valid]
    begin = time.time()
    for r in range(rounds):
        metrics.reset()
        order = rng.permutation(len(train[0]))
        for i in range(0, len(order), batch):
            idx = order[i : i + batch]
            train_batch(model, trainer.optimizer, metrics, *(a[idx] for a in train))
        per_task, curves = jax.device_get(likelihood(evaluator, *valid_device))
        trainer.report(per_task.mean())
        c = [concordance(curves[:, k], valid[1][:, k], valid[2][:, k]) for k in range(len(MODES))]
        scores = "  ".join(f"{m} {v:.3f}" for m, v in zip(MODES, c))
        print(f"round {r:2d}  train {float(metrics.compute()):.3f}  valid {per_task.mean():.3f}  C: {scores}  lr {trainer.rate:.1e}")
    print(f"{time.time() - begin:.1f}s")


if __name__ == "__main__":
    main()
