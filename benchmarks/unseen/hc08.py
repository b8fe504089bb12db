"""Recurrent marked point process for support tickets: when does the next ticket come, and of what kind?

Customers' histories have very different lengths; they are padded to one of three lengths, so
that the training step is compiled three times and no more. (flax.linen, optax)
"""
from collections import defaultdict

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

KINDS = 5
BUCKETS = (32, 64, 128)
BATCH = 32
EPOCHS = 10


def simulate_customer(rng):
    """Self-exciting process by thinning: tickets of a kind raise the rate of the next kind."""
    base = rng.uniform(0.02, 0.08, KINDS)
    excite = 0.25 * np.roll(np.eye(KINDS), 1, axis=1) + 0.1 * np.eye(KINDS)
    horizon = rng.uniform(40, 200)
    t, state, events = 0.0, np.zeros(KINDS), []
    while len(events) < BUCKETS[-1]:
        bound = base.sum() + state.sum()
        wait = rng.exponential(1 / bound)
        t += wait
        if t > horizon:
            break
        state = state * np.exp(-0.5 * wait)
        rate = base + state
        if rng.random() * bound < rate.sum():
            kind = rng.choice(KINDS, p=rate / rate.sum())
            events.append((t, kind))
            state = state + excite[kind]
    return np.array(events).reshape(-1, 2)


def to_batches(histories, rng):
    """Batches of equally padded histories; the last, incomplete ones are filled with empty rows."""
    groups = defaultdict(list)
    for h in histories:
        groups[next(b for b in BUCKETS if len(h) <= b)].append(h)
    batches = []
    for length, members in groups.items():
        order = rng.permutation(len(members))
        for i in range(0, len(order), BATCH):
            gaps = np.zeros((BATCH, length), np.float32)
            kinds = np.zeros((BATCH, length), np.int32)
            mask = np.zeros((BATCH, length), np.float32)
            for row, j in enumerate(order[i:i + BATCH]):
                h = members[j]
                gaps[row, :len(h)] = np.diff(h[:, 0], prepend=0.0)
                kinds[row, :len(h)] = h[:, 1]
                mask[row, :len(h)] = 1.0
            batches.append((gaps, kinds, mask))
    rng.shuffle(batches)
    return batches


class PointProcess(nn.Module):
    hidden: int = 48

    @nn.compact
    def __call__(self, gaps, kinds):
        """Parameters of the next event after every prefix: (log-normal mean, log std, kind logits)."""
        x = jnp.concatenate([nn.Embed(KINDS, 12)(kinds), jnp.log1p(gaps)[..., None]], -1)
        h = nn.RNN(nn.GRUCell(self.hidden))(x)
        h = jnp.concatenate([jnp.zeros_like(h[:, :1]), h[:, :-1]], axis=1)
        h = nn.relu(nn.Dense(self.hidden)(h))
        time = nn.Dense(2)(h)
        return time[..., 0], jnp.clip(time[..., 1], -3, 2), nn.Dense(KINDS)(h)


model = PointProcess()
optimizer = optax.adamw(4e-3, weight_decay=1e-4)


def sums(params, batch):
    gaps, kinds, mask = batch
    mean, log_std, logits = model.apply(params, gaps, kinds)
    log_gap = jnp.log(gaps + 1e-3)
    nll_time = log_std + 0.5 * ((log_gap - mean) / jnp.exp(log_std)) ** 2
    nll_kind = optax.softmax_cross_entropy_with_integer_labels(logits, kinds)
    hits = (logits.argmax(-1) == kinds) * mask
    return jnp.sum(mask * nll_time), jnp.sum(mask * nll_kind), hits.sum(), mask.sum()


@jax.jit
def train_step(params, opt_state, totals, batch):
    def loss_fn(params):
        out = jnp.stack(sums(params, batch))
        return (out[0] + out[1]) / jnp.maximum(out[3], 1.0), out

    (_, out), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, totals + out


@jax.jit
def eval_step(params, totals, batch):
    return totals + jnp.stack(sums(params, batch))


def main():
    rng = np.random.default_rng(8)
    histories = [h for h in (simulate_customer(rng) for _ in range(700)) if len(h) >= 4]
    train, test = histories[:560], histories[560:]
    print(f"{len(histories)} customers, lengths {min(map(len, histories))} to {max(map(len, histories))}")
    test_batches = [jax.device_put(b) for b in to_batches(test, rng)]
    params = jax.jit(model.init)(jax.random.key(0), test_batches[0][0], test_batches[0][1])
    opt_state = optimizer.init(params)
    for epoch in range(EPOCHS):
        totals = jnp.zeros(4)
        for batch in to_batches(train, rng):
            params, opt_state, totals = train_step(params, opt_state, totals, batch)
        test_totals = jnp.zeros(4)
        for batch in test_batches:
            test_totals = eval_step(params, test_totals, batch)
        tr, te = np.asarray(totals), np.asarray(test_totals)
        print(f"epoch {epoch:2d}  train time {tr[0] / tr[3]:.3f} kind {tr[1] / tr[3]:.3f}   "
              f"test time {te[0] / te[3]:.3f} kind {te[1] / te[3]:.3f} accuracy {te[2] / te[3]:.3f}")


if __name__ == "__main__":
    main()
