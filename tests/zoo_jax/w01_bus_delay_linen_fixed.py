"""Arrival delay of city buses from stop, line, weather and time of day.

An MLP with embeddings, trained with warm restarts (cosine cycles); after each
epoch the rows with the largest errors get one additional update.
"""
import argparse
import logging
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state

log = logging.getLogger("bus_delay")

N_LINES, N_STOPS = 40, 600


def synthesize(n, seed):
    rng = np.random.default_rng(seed)
    line = rng.integers(0, N_LINES, n)
    stop = rng.integers(0, N_STOPS, n)
    hour = rng.uniform(5, 24, n)
    rain = rng.gamma(0.4, 2.0, n)
    load = np.clip(rng.normal(0.5, 0.2, n) + 0.2 * np.cos((hour - 8) / 3), 0, 1.2)
    base = np.sin(line * 0.7) + 0.003 * stop
    peak = 2.5 * np.exp(-((hour - 8.2) ** 2) / 2) + 2.0 * np.exp(-((hour - 17.3) ** 2) / 3)
    delay = base + peak * (0.5 + load) + 0.3 * rain * load + rng.standard_t(4, n) * 0.5
    dense = np.stack(
        [np.sin(2 * np.pi * hour / 24), np.cos(2 * np.pi * hour / 24), np.log1p(rain), load], axis=1
    )
    return {
        "line": line.astype(np.int32),
        "stop": stop.astype(np.int32),
        "dense": dense.astype(np.float32),
        "delay": delay.astype(np.float32),
    }


class DelayNet(nn.Module):
    width: int = 64
    depth: int = 1

    @nn.compact
    def __call__(self, line, stop, dense, *, train):
        h = jnp.concatenate(
            [
                nn.Embed(N_LINES, 16, name="line_emb")(line),
                nn.Embed(N_STOPS, 24, name="stop_emb")(stop),
                nn.Dense(24, name="dense_in")(dense),
            ],
            axis=-1,
        )
        h = nn.Dense(self.width)(h)
        for _ in range(self.depth):
            r = nn.LayerNorm()(h)
            r = nn.Dense(self.width * 2)(r)
            r = nn.gelu(r)
            r = nn.Dropout(0.1, deterministic=not train)(r)
            h = h + nn.Dense(self.width)(r)
        return nn.Dense(1)(nn.LayerNorm()(h))[:, 0]


def huber(pred, target):
    return optax.huber_loss(pred, target, delta=1.0)


@jax.jit
def train_step(state, batch, rng):
    rng = jax.random.fold_in(rng, state.step)

    def loss_fn(params):
        pred = state.apply_fn(
            {"params": params}, batch["line"], batch["stop"], batch["dense"],
            train=True, rngs={"dropout": rng},
        )
        return huber(pred, batch["delay"]).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


@jax.jit
def absolute_errors(params, batch):
    pred = DelayNet().apply(
        {"params": params}, batch["line"], batch["stop"], batch["dense"], train=False
    )
    return jnp.abs(pred - batch["delay"])


def take(data, idx):
    return {k: v[idx] for k, v in data.items()}


def make_optimizer():
    adamw = optax.inject_hyperparams(optax.adamw)(learning_rate=0.0, weight_decay=1e-4)
    return optax.chain(optax.clip_by_global_norm(1.0), adamw)


def start_cycle(apply_fn, tx, params):
    return train_state.TrainState.create(apply_fn=apply_fn, params=params, tx=tx)


def cosine(peak_lr, done, n_steps):
    return peak_lr * (0.02 + 0.98 * 0.5 * (1 + np.cos(np.pi * min(done / n_steps, 1.0))))


def with_rate(state, rate):
    clip, adamw = state.opt_state
    adamw = adamw._replace(hyperparams={**adamw.hyperparams, "learning_rate": np.float32(rate)})
    return state.replace(opt_state=(clip, adamw))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--cycles", type=int, default=4)
    ap.add_argument("--epochs-per-cycle", type=int, default=2)
    ap.add_argument("--batch-size", type=int, default=512)
    ap.add_argument("--hard-minutes", type=float, default=1.6)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

    train = synthesize(16384, seed=0)
    val = synthesize(4096, seed=1)
    model = DelayNet()
    params = jax.jit(lambda k, b: model.init(k, b["line"], b["stop"], b["dense"], train=False))(
        jax.random.key(0), take(train, slice(0, 2))
    )["params"]
    rng = jax.random.key(1)
    apply_fn, tx = model.apply, make_optimizer()
    order = np.random.default_rng(2)
    steps = len(train["delay"]) // args.batch_size

    t0 = time.time()
    for cycle in range(args.cycles):
        state = start_cycle(apply_fn, tx, params)
        peak, done = 2e-3 * 0.8**cycle, 0
        for epoch in range(args.epochs_per_cycle):
            perm = order.permutation(len(train["delay"]))
            losses = []
            for i in range(steps):
                idx = perm[i * args.batch_size : (i + 1) * args.batch_size]
                state = with_rate(state, cosine(peak, done, args.epochs_per_cycle * (steps + 1)))
                done += 1
                state, loss = train_step(state, take(train, idx), rng)
                losses.append(loss)

            err = np.asarray(absolute_errors(state.params, train))
            hard = np.argsort(-err)[: args.batch_size]
            state, hard_loss = train_step(state, take(train, hard), rng)

            mae = float(absolute_errors(state.params, val).mean())
            log.info(
                "cycle %d epoch %d loss %.3f hard %d (%.2f) val MAE %.3f min  %.1fs",
                cycle, epoch, float(jnp.stack(losses).mean()), len(hard), float(hard_loss), mae,
                time.time() - t0,
            )
        params = state.params
        rng = jax.random.fold_in(rng, cycle)


if __name__ == "__main__":
    main()
