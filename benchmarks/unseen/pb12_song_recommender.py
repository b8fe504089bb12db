"""Two-tower song recommender with in-batch negatives; song features come from a fixed table."""
import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax


@dataclass
class Catalogue:
    features: np.ndarray
    popularity: np.ndarray

    @classmethod
    def synthetic(cls, songs, dim, rng):
        genre = rng.normal(size=(20, dim))
        which = rng.integers(0, 20, songs)
        features = genre[which] + 0.7 * rng.normal(size=(songs, dim))
        pop = rng.pareto(1.5, songs) + 0.1
        return cls(features, pop / pop.sum())


class Listeners:
    """Play histories: each listener has a taste vector and plays the songs nearest to it."""

    def __init__(self, cat, n, history, rng):
        self.rng, self.history = rng, history
        cand = rng.choice(len(cat.popularity), (n, 80), p=cat.popularity)
        taste = rng.normal(size=(n, cat.features.shape[1]))
        score = np.einsum("ncd,nd->nc", cat.features[cand], taste)
        order = np.argsort(-score, 1)[:, :history + 1]
        self.plays = np.take_along_axis(cand, order, 1).astype(np.int32)

    def batches(self, size):
        order = self.rng.permutation(len(self.plays))
        for i in range(0, len(order) - size + 1, size):
            rows = self.plays[order[i:i + size]]
            hide = self.rng.integers(0, rows.shape[1], size)
            target = rows[np.arange(size), hide]
            keep = np.arange(rows.shape[1])[None] != hide[:, None]
            yield rows[keep].reshape(size, -1), target


def dense(key, a, b):
    return {"w": jax.random.normal(key, (a, b)) / np.sqrt(a), "b": jnp.zeros(b)}


def init(key, dim, width=64, out=32):
    k = jax.random.split(key, 4)
    return {"song": [dense(k[0], dim, width), dense(k[1], width, out)],
            "user": [dense(k[2], dim, width), dense(k[3], width, out)], "logit": jnp.array(2.0)}


def tower(layers, x):
    x = jax.nn.relu(x @ layers[0]["w"] + layers[0]["b"])
    x = x @ layers[1]["w"] + layers[1]["b"]
    return x / jnp.linalg.norm(x + 1e-6, axis=-1, keepdims=True)


class Recommender:
    def __init__(self, cat, key):
        self.cat = cat
        self.params = init(key, cat.features.shape[1])
        self.tx = optax.adam(2e-3)
        self.opt = self.tx.init(self.params)
        self.update = jax.jit(self._update, donate_argnums=(0, 1))
        self.score = jax.jit(self._score)

    def _embed(self, params, table, history, target):
        user = tower(params["user"], table[history].mean(1))
        return user, tower(params["song"], table[target])

    def _update(self, params, opt, table, pop, history, target):
        def loss_fn(p):
            u, s = self._embed(p, table, history, target)
            logits = u @ s.T * jnp.exp(p["logit"]) - jnp.log(pop[target])[None]
            return optax.softmax_cross_entropy_with_integer_labels(logits, jnp.arange(len(target))).mean()

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt = self.tx.update(grads, opt, params)
        return optax.apply_updates(params, updates), opt, loss

    def _score(self, params, table, history, target):
        u, s = self._embed(params, table, history, target)
        sim = u @ s.T
        return (sim > jnp.diag(sim)[:, None]).sum(1)

    def fit(self, batches):
        losses = []
        for history, target in batches:
            self.params, self.opt, loss = self.update(
                self.params, self.opt, self.cat.features, self.cat.popularity, history, target)
            losses.append(loss)
        return float(np.mean(jax.device_get(losses)))

    def rank(self, batches):
        ranks = [self.score(self.params, self.cat.features, *b) for b in batches]
        return np.concatenate(jax.device_get(ranks))


def main():
    rng = np.random.default_rng(0)
    cat = Catalogue.synthetic(40_000, 64, rng)
    train, test = Listeners(cat, 4000, 12, rng), Listeners(cat, 512, 12, rng)
    model = Recommender(cat, jax.random.key(0))
    began = time.time()
    for epoch in range(8):
        loss = model.fit(train.batches(64))
        ranks = model.rank(test.batches(64))
        print(f"epoch {epoch} loss {loss:.3f} recall@5 {(ranks < 5).mean():.3f} "
              f"mrr {(1 / (1 + ranks)).mean():.3f} {time.time() - began:.1f}s", flush=True)


if __name__ == "__main__":
    main()
