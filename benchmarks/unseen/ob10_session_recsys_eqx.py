"""Next-item recommendation from click sessions: equinox GRU with a KL-annealed variational bottleneck."""
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax


ITEMS, LENGTH = 120, 16


def click_sessions(count, seed):
    rng = np.random.default_rng(seed)
    topic_of = np.arange(ITEMS) % 10
    by_topic = [np.flatnonzero(topic_of == k) for k in range(10)]
    sessions = np.empty((count, LENGTH + 1), np.int32)
    for row in sessions:
        topic = rng.integers(10)
        for t in range(LENGTH + 1):
            if rng.random() < 0.1:
                topic = (topic + 3) % 10
            row[t] = by_topic[topic][int(rng.integers(12) * rng.random())]
    return sessions


class SessionModel(eqx.Module):
    embed: eqx.nn.Embedding
    cell: eqx.nn.GRUCell
    bottleneck: eqx.nn.Linear
    head: eqx.nn.Linear
    latent: int = eqx.field(static=True)

    def __init__(self, width, latent, key):
        k = jr.split(key, 4)
        self.embed = eqx.nn.Embedding(ITEMS, width, key=k[0])
        self.cell = eqx.nn.GRUCell(width, width, key=k[1])
        self.bottleneck = eqx.nn.Linear(width, 2 * latent, key=k[2])
        self.head = eqx.nn.Linear(latent, ITEMS, key=k[3])
        self.latent = latent

    def __call__(self, items, key=None):
        x = jax.vmap(self.embed)(items)

        def advance(h, xt):
            h = self.cell(xt, h)
            return h, h

        _, hidden = jax.lax.scan(advance, jnp.zeros(self.cell.hidden_size), x)
        mean, logvar = jnp.split(jax.vmap(self.bottleneck)(hidden), 2, axis=-1)
        z = mean
        if key is not None:
            z = mean + jnp.exp(0.5 * logvar) * jr.normal(key, mean.shape)
        kl = 0.5 * jnp.sum(jnp.exp(logvar) + mean ** 2 - 1 - logvar, axis=-1)
        return jax.vmap(self.head)(z), kl


def beta_schedule(step, warmup, peak=0.05):
    return peak * min(1.0, step / warmup)


def objective(model, sessions, key, beta):
    keys = jr.split(key, sessions.shape[0])
    logits, kl = jax.vmap(model)(sessions[:, :-1], keys)
    ce = optax.softmax_cross_entropy_with_integer_labels(logits, sessions[:, 1:])
    return ce.mean() + beta * kl.mean(), ce.mean()


class Trainer:
    def __init__(self, model, lr, steps):
        self.opt = optax.adam(optax.cosine_decay_schedule(lr, steps))
        self.model = model
        self.opt_state = self.opt.init(eqx.filter(model, eqx.is_inexact_array))
        self.history = []

    @staticmethod
    @eqx.filter_jit(donate="all-except-first")
    def _update(frozen, model, opt_state, beta):
        opt, sessions, key = frozen
        grad_fn = eqx.filter_value_and_grad(objective, has_aux=True)
        (_, ce), grads = grad_fn(model, sessions, key, beta)
        updates, opt_state = opt.update(grads, opt_state)
        return eqx.apply_updates(model, updates), opt_state, ce

    def fit_batch(self, sessions, key, beta):
        self.model, self.opt_state, ce = self._update(
            (self.opt, sessions, key), self.model, self.opt_state, beta)
        self.history.append(ce)

    def recall(self, batches, k=10):
        hits = []
        for sessions in batches:
            logits, _ = jax.vmap(self.model)(sessions[:, :-1])
            _, top = jax.lax.top_k(logits[:, -1], k)
            hits.append((top == sessions[:, -1:]).any(-1).mean())
        return float(np.mean(jax.device_get(hits)))


def main(steps=80, warmup=3, batch=64):
    sessions = click_sessions(3000, 0)
    held_out = click_sessions(512, 1).reshape(8, 64, -1)
    trainer = Trainer(SessionModel(32, 16, jr.key(0)), 4e-3, steps)
    rng, key = np.random.default_rng(2), jr.key(3)
    start = time.perf_counter()
    for step in range(1, steps + 1):
        rows = sessions[rng.integers(0, len(sessions), batch)]
        trainer.fit_batch(rows, jr.fold_in(key, step), beta_schedule(step, warmup))
        if step % 20 == 0:
            ce = np.mean(jax.device_get(trainer.history[-20:]))
            print(f"step {step} ce {ce:.3f} recall@10 {trainer.recall(held_out):.3f} {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
