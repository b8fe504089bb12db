"""Leave-one-site-out cross-validation of a gas classifier for a metal-oxide sensor array.

Every site ran a different number of exposures; a model is trained on all the other sites and scored
on the one held out.
"""
import argparse
import logging
import time
from dataclasses import dataclass

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state

log = logging.getLogger("gas")
GASES = ("ethanol", "acetone", "ammonia", "toluene", "ethylene")


@dataclass
class Site:
    name: str
    x: np.ndarray  # (exposures, time, sensors)
    y: np.ndarray


def simulate_site(rng, name, exposures, steps=40, sensors=8):
    y = rng.integers(0, len(GASES), exposures)
    t = np.linspace(0, 1, steps)[None, :, None]
    gain = np.random.default_rng(7).uniform(0.3, 2.0, (len(GASES), 1, sensors))
    tau = np.random.default_rng(8).uniform(0.05, 0.5, (len(GASES), 1, sensors))
    drift = rng.normal(0, 0.15, (1, 1, sensors))
    x = gain[y] * (1 - np.exp(-t / tau[y])) + drift * t
    x = x + rng.normal(0, 0.25, x.shape)
    return Site(name, x.astype(np.float32), y.astype(np.int32))


class SensorNet(nn.Module):
    classes: int
    width: int = 16

    @nn.compact
    def __call__(self, x, train: bool):
        for k in (5, 3):
            x = nn.Conv(self.width, (k,), strides=(2,))(x)
            x = nn.LayerNorm()(x)
            x = nn.gelu(x)
        x = x.mean(axis=1)
        x = nn.Dropout(0.1, deterministic=not train)(x)
        return nn.Dense(self.classes)(x)


model = SensorNet(classes=len(GASES))
init = jax.jit(model.init, static_argnames="train")


def create_state(key, sample, tx):
    params = init(key, sample, train=False)["params"]
    return train_state.TrainState.create(apply_fn=model.apply, params=params, tx=tx)


@jax.jit
def train_step(state, x, y, key):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, x, train=True, rngs={"dropout": key})
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


@jax.jit
def count_correct(state, x, y):
    logits = state.apply_fn({"params": state.params}, x, train=False)
    return (logits.argmax(-1) == y).sum()


def batches(rng, x, y, size):
    order = rng.permutation(len(x))
    for i in range(0, len(x) - size + 1, size):
        idx = order[i:i + size]
        yield x[idx], y[idx]


def pad_to(x, y, size):
    """Fills up with exposures of no gas, which are never counted."""
    fill = size - len(x)
    return np.pad(x, ((0, fill), (0, 0), (0, 0))), np.pad(y, (0, fill), constant_values=-1)


def run_fold(sites, held_out, tx, args):
    rng = np.random.default_rng(args.seed)
    train = [s for s in sites if s.name != held_out.name]
    x = np.concatenate([s.x for s in train])
    y = np.concatenate([s.y for s in train])
    mean, std = x.mean((0, 1)), x.std((0, 1)) + 1e-6
    x = (x - mean) / std

    key = jax.random.key(args.seed)
    state = create_state(key, x[:2], tx)
    for epoch in range(args.epochs):
        losses = []
        for bx, by in batches(rng, x, y, args.batch):
            key, sub = jax.random.split(key)
            state, loss = train_step(state, bx, by, sub)
            losses.append(loss)
        if epoch % 5 == 4:
            log.info("%s epoch %d loss %.4f", held_out.name, epoch + 1, float(jnp.stack(losses).mean()))

    test_x, test_y = pad_to((held_out.x - mean) / std, held_out.y, max(len(s.x) for s in sites))
    return int(count_correct(state, test_x, test_y)) / len(held_out.y)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

    rng = np.random.default_rng(args.seed)
    sizes = (310, 277, 402, 355)
    sites = [simulate_site(rng, f"site{i}", n) for i, n in enumerate(sizes)]
    t0 = time.perf_counter()
    scores = []
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(args.lr, weight_decay=1e-3))
    for site in sites:
        scores.append(run_fold(sites, site, tx, args))
        log.info("%s accuracy %.3f", site.name, scores[-1])
    log.info("mean accuracy %.3f in %.1f s", float(np.mean(scores)), time.perf_counter() - t0)


if __name__ == "__main__":
    main()
