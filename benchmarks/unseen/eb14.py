"""Keyword transcription with a CTC loss on synthetic 'speech'.

Utterances differ in length; they are sorted into four buckets so that only four
programs are compiled for training and four for evaluation.
"""
import time
from collections import defaultdict

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState

PHONES, MELS, MAX_LABELS = 12, 24, 8
BUCKETS = (48, 64, 80, 96)
BATCH = 32


class Encoder(nn.Module):
    width: int = 64

    @nn.compact
    def __call__(self, x):
        h = nn.Conv(self.width, (5,), strides=(2,))(x)
        h = nn.relu(nn.LayerNorm()(h))
        forward = nn.RNN(nn.GRUCell(self.width))
        backward = nn.RNN(nn.GRUCell(self.width), reverse=True, keep_order=True)
        h = nn.Bidirectional(forward, backward)(h)
        return nn.Dense(PHONES + 1)(h)


def utterance(templates, rng):
    labels = rng.integers(1, PHONES + 1, rng.integers(4, MAX_LABELS + 1))
    pieces = [np.repeat(templates[k][None], rng.integers(8, 12), 0) for k in labels]
    x = np.concatenate(pieces)[:BUCKETS[-1]]
    return (x + 0.7 * rng.standard_normal(x.shape)).astype(np.float32), labels


def bucketed(items):
    groups = defaultdict(list)
    for x, labels in items:
        groups[next(b for b in BUCKETS if b >= len(x))].append((x, labels))
    return groups


def collate(items, bucket):
    x = np.zeros((BATCH, bucket, MELS), np.float32)
    frame_pad = np.ones((BATCH, bucket // 2), np.float32)
    labels = np.zeros((BATCH, MAX_LABELS), np.int32)
    label_pad = np.ones((BATCH, MAX_LABELS), np.float32)
    for i, (u, l) in enumerate(items):
        x[i, :len(u)], frame_pad[i, :len(u) // 2] = u, 0.0
        labels[i, :len(l)], label_pad[i, :len(l)] = l, 0.0
    weight = (np.arange(BATCH) < len(items)).astype(np.float32)
    return dict(x=x, frame_pad=frame_pad, labels=labels, label_pad=label_pad, weight=weight)


def batches(groups, rng=None):
    plan = []
    for bucket, items in sorted(groups.items()):
        order = rng.permutation(len(items)) if rng is not None else np.arange(len(items))
        plan += [(bucket, order[i:i + BATCH]) for i in range(0, len(order), BATCH)]
    if rng is not None:
        plan = [plan[i] for i in rng.permutation(len(plan))]
    for bucket, index in plan:
        yield collate([groups[bucket][i] for i in index], bucket)


def ctc(logits, b):
    per = optax.ctc_loss(logits, b["frame_pad"], b["labels"], b["label_pad"])
    return (per * b["weight"]).sum() / b["weight"].sum()


@jax.jit
def train_step(state, b):
    value, grads = jax.value_and_grad(lambda p: ctc(state.apply_fn(p, b["x"]), b))(state.params)
    return state.apply_gradients(grads=grads), value


@jax.jit
def greedy(state, b):
    path = state.apply_fn(state.params, b["x"]).argmax(-1)
    return jnp.where(b["frame_pad"] > 0, 0, path)


def collapse(path):
    keep = np.concatenate([[True], path[1:] != path[:-1]]) & (path != 0)
    return path[keep].tolist()


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


def error_rate(state, groups):
    errors = total = 0
    for b in batches(groups):
        for path, labels, pad, w in zip(np.asarray(greedy(state, b)), b["labels"], b["label_pad"], b["weight"]):
            if w:
                wanted = labels[pad == 0].tolist()
                errors += edit_distance(collapse(path), wanted)
                total += len(wanted)
    return errors / total


def main(epochs=7):
    rng = np.random.default_rng(0)
    templates = 1.3 * rng.standard_normal((PHONES + 1, MELS))
    train = bucketed(utterance(templates, rng) for _ in range(960))
    valid = bucketed(utterance(templates, rng) for _ in range(128))
    model = Encoder()
    params = model.init(jax.random.key(0), jnp.zeros((1, BUCKETS[0], MELS)))
    schedule = optax.cosine_decay_schedule(4e-3, epochs * 32)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))
    state = TrainState.create(apply_fn=model.apply, params=params, tx=tx)
    for epoch in range(epochs):
        begin, losses = time.perf_counter(), []
        for b in batches(train, rng):
            state, value = train_step(state, b)
            losses.append(value)
        loss = float(jnp.stack(losses).mean())              # waits for the epoch
        spent = time.perf_counter() - begin
        per = f"  PER {error_rate(state, valid):.3f}" if epoch % 3 == 1 or epoch == epochs - 1 else ""
        print(f"epoch {epoch:2d}  loss {loss:.3f}  {spent:.2f} s{per}")


if __name__ == "__main__":
    main()
