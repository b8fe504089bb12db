"""Routes support tickets to teams: a small linen text classifier with length buckets."""
import logging
import time
from collections import defaultdict
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from flax.training import train_state

logger = logging.getLogger(__name__)

VOCAB, TEAMS = 800, 7
BUCKETS = (24, 48)
BATCH = {24: 128, 48: 64}


def make_tickets(n, seed):
    rng = np.random.default_rng(seed)
    topics = np.random.default_rng(99).dirichlet(np.full(VOCAB - 1, 0.05), TEAMS)
    common = np.random.default_rng(98).dirichlet(np.full(VOCAB - 1, 0.3))
    tickets = []
    for _ in range(n):
        team = int(rng.integers(TEAMS))
        length = int(np.clip(rng.lognormal(3.1, 0.45), 5, BUCKETS[-1]))
        probs = 0.35 * topics[team] + 0.65 * common
        words = rng.choice(VOCAB - 1, size=length, p=probs) + 1
        tickets.append((words.astype(np.int32), team))
    return tickets


def bucketed(tickets):
    groups = defaultdict(list)
    for words, team in tickets:
        width = next(b for b in BUCKETS if len(words) <= b)
        groups[width].append((np.pad(words, (0, width - len(words))), team))
    return {
        width: (np.stack([w for w, _ in rows]), np.array([t for _, t in rows], np.int32))
        for width, rows in sorted(groups.items())
    }


def epoch_batches(groups, rng):
    plan = []
    for width, (words, _) in groups.items():
        order = rng.permutation(len(words))
        size = BATCH[width]
        plan += [(width, order[i : i + size]) for i in range(0, len(words) - size + 1, size)]
    rng.shuffle(plan)
    for width, pick in plan:
        words, teams = groups[width]
        yield words[pick], teams[pick]


class Router(nn.Module):
    width: int = 64

    @nn.compact
    def __call__(self, words, train: bool):
        mask = (words > 0)[..., None]
        x = nn.Embed(VOCAB, self.width)(words)
        x = nn.Dropout(0.2, deterministic=not train)(x) * mask
        y = nn.relu(nn.Conv(self.width, (5,))(x)) * mask
        x = nn.LayerNorm()(x + y) * mask
        y = nn.relu(nn.Conv(self.width, (5,), kernel_dilation=(2,))(x)) * mask
        x = nn.LayerNorm()(x + y) * mask
        pooled = x.sum(axis=1) / jnp.maximum(mask.sum(axis=1), 1)
        return nn.Dense(TEAMS)(nn.tanh(nn.Dense(self.width)(pooled)))


@struct.dataclass
class Tally:
    loss: jax.Array
    right: jax.Array
    seen: jax.Array

    @classmethod
    def empty(cls):
        return cls(jnp.zeros(()), jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))


@partial(jax.jit, donate_argnums=(0, 1))
def train_step(state, tally, words, teams, key):
    key = jax.random.fold_in(key, state.step)

    def loss_fn(params):
        logits = state.apply_fn({"params": params}, words, train=True, rngs={"dropout": key})
        return optax.softmax_cross_entropy_with_integer_labels(logits, teams).mean(), logits

    (loss, logits), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    right = (logits.argmax(-1) == teams).sum(dtype=jnp.int32)
    tally = Tally(tally.loss + loss * teams.shape[0], tally.right + right, tally.seen + teams.shape[0])
    return state.apply_gradients(grads=grads), tally


@jax.jit
def count_right(state, words, teams):
    logits = state.apply_fn({"params": state.params}, words, train=False)
    return (logits.argmax(-1) == teams).sum()


def evaluate(state, groups):
    counts = [count_right(state, *groups[w]) for w in groups]
    total = sum(len(t) for _, t in groups.values())
    return sum(int(c) for c in counts) / total


def main():
    logging.basicConfig(level=logging.INFO, format="%(levelname).1s %(message)s")
    train, test = bucketed(make_tickets(4000, 0)), bucketed(make_tickets(800, 1))
    for width, (words, _) in train.items():
        logger.info("bucket %d: %d tickets", width, len(words))

    model = Router()
    params = jax.jit(partial(model.init, train=False))(jax.random.key(0), jnp.zeros((1, BUCKETS[0]), jnp.int32))
    tx = optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 3e-3, 30, 600))
    state = train_state.TrainState.create(apply_fn=model.apply, params=params["params"], tx=tx)
    key, rng = jax.random.key(1), np.random.default_rng(5)

    step, tally, clock = 0, Tally.empty(), time.monotonic()
    for epoch in range(5):
        for words, teams in epoch_batches(train, rng):
            state, tally = train_step(state, tally, words, teams, key)
            step += 1
            if step % 50 == 0:
                window = jax.device_get(tally)
                logger.info(
                    "step %4d loss %.3f acc %.3f %.1fs", step, window.loss / window.seen,
                    window.right / window.seen, time.monotonic() - clock,
                )
                tally = Tally.empty()
        if epoch % 2 == 0:
            logger.info("epoch %d test accuracy %.3f", epoch, evaluate(state, test))


if __name__ == "__main__":
    main()
