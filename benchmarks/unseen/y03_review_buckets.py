"""Star rating from product reviews: a small attention-pooling classifier in plain JAX with bucketed lengths."""
import time
from collections import defaultdict
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

VOCAB, DIM, CLASSES = 2000, 48, 5
BUCKETS = {24: 96, 48: 48, 96: 24}          # length -> batch size, about the same number of tokens each
EVAL_LENGTH, EVAL_BATCH = 96, 100
STEPS_PER_EPOCH, EPOCHS, LOG_EVERY = 400, 3, 50


def make_reviews(n, rng):
    """Token lists whose mix of 'happy' and 'angry' words gives the stars."""
    happy, angry = np.arange(10, 60), np.arange(60, 110)
    reviews = []
    for _ in range(n):
        stars = int(rng.integers(CLASSES))
        length = int(np.clip(rng.lognormal(3.4, 0.5), 6, 96))
        tokens = rng.integers(110, VOCAB, length)
        k = max(2, length // 4)
        where = rng.choice(length, k, replace=False)
        mood = rng.random(k) < stars / (CLASSES - 1)
        tokens[where] = np.where(mood, rng.choice(happy, k), rng.choice(angry, k))
        reviews.append((tokens.astype(np.int32), stars))
    return reviews


def pad(tokens, length):
    out = np.zeros(length, np.int32)
    out[:len(tokens)] = tokens
    return out


class BucketedStream:
    """Endless batches; every bucket has one shape, short leftovers stay in the bucket until it is full."""

    def __init__(self, reviews, rng):
        self.reviews, self.rng = reviews, rng
        self.waiting = defaultdict(list)
        self.encoded = []
        for tokens, stars in reviews:
            length = next(b for b in BUCKETS if len(tokens) <= b)
            self.encoded.append((length, pad(tokens, length), stars))

    def __iter__(self):
        while True:
            for i in self.rng.permutation(len(self.encoded)):
                length, tokens, stars = self.encoded[i]
                bucket = self.waiting[length]
                bucket.append((tokens, stars))
                if len(bucket) == BUCKETS[length]:
                    x = np.stack([t for t, _ in bucket])
                    y = np.array([s for _, s in bucket], np.int32)
                    bucket.clear()
                    yield x, y


def init_params(key):
    k = jax.random.split(key, 4)
    scale = DIM**-0.5
    return {
        "embed": jax.random.normal(k[0], (VOCAB, DIM)) * 0.1,
        "query": jax.random.normal(k[1], (4, DIM)) * scale,
        "w1": jax.random.normal(k[2], (4 * DIM, 64)) * (4 * DIM) ** -0.5,
        "b1": jnp.zeros(64),
        "w2": jax.random.normal(k[3], (64, CLASSES)) * 0.125,
        "b2": jnp.zeros(CLASSES),
    }


def logits_fn(params, tokens, key=None, word_drop=0.1):
    mask = tokens > 0
    if key is not None:
        mask &= jax.random.bernoulli(key, 1 - word_drop, tokens.shape)
    e = params["embed"][tokens]
    score = jnp.einsum("btd,qd->bqt", e, params["query"])
    att = jax.nn.softmax(jnp.where(mask[:, None], score, -1e9), -1)
    pooled = jnp.einsum("bqt,btd->bqd", att, e).reshape(tokens.shape[0], -1)
    h = jax.nn.relu(pooled @ params["w1"] + params["b1"])
    return h @ params["w2"] + params["b2"]


def make_step(tx):
    @partial(jax.jit, donate_argnums=(0, 1))
    def step(params, opt_state, key, tokens, stars):
        key, sub = jax.random.split(key)

        def loss_fn(p):
            logits = logits_fn(p, tokens, sub)
            return optax.softmax_cross_entropy_with_integer_labels(logits, stars).mean()

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, key, loss

    return step


@jax.jit
def count_correct(params, tokens, stars):
    pred = logits_fn(params, tokens).argmax(-1)
    return jnp.sum((pred == stars) & (stars >= 0))


def evaluate(params, batches, n):
    hits = [count_correct(params, x, y) for x, y in batches]
    return sum(int(h) for h in jax.device_get(hits)) / n


def eval_batches(reviews):
    out = []
    for s in range(0, len(reviews), EVAL_BATCH):
        part = reviews[s:s + EVAL_BATCH]
        x = np.zeros((EVAL_BATCH, EVAL_LENGTH), np.int32)
        y = np.full(EVAL_BATCH, -1, np.int32)
        for j, (tokens, stars) in enumerate(part):
            x[j], y[j] = pad(tokens, EVAL_LENGTH), stars
        out.append((jnp.asarray(x), jnp.asarray(y)))
    return out


def main():
    rng = np.random.default_rng(11)
    train, test = make_reviews(6000, rng), make_reviews(950, rng)
    tx = optax.adam(optax.cosine_decay_schedule(3e-3, EPOCHS * STEPS_PER_EPOCH))
    key = jax.random.key(0)
    params = init_params(key)
    opt_state = tx.init(params)
    step = make_step(tx)

    for length, batch in BUCKETS.items():       # compile all bucket shapes before the clock starts
        step.lower(params, opt_state, key, np.zeros((batch, length), np.int32), np.zeros(batch, np.int32)).compile()
    stream = iter(BucketedStream(train, rng))
    held_out = eval_batches(test)

    for epoch in range(EPOCHS):
        start = time.perf_counter()
        for i in range(STEPS_PER_EPOCH):
            x, y = next(stream)
            params, opt_state, key, loss = step(params, opt_state, key, x, y)
            if i % LOG_EVERY == 0:
                print(f"  {epoch}:{i:4d} loss {float(loss):.3f}")
        acc = evaluate(params, held_out, len(test))
        print(f"epoch {epoch}: accuracy {acc:.3f}  ({time.perf_counter() - start:.1f} s)")


if __name__ == "__main__":
    main()
