# Named-entity style tagging of synthetic sentences with a bidirectional GRU, plain JAX + optax.
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

VOCAB, EMB, HID = 800, 32, 48
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
BATCH, EPOCHS = 32, 3
PAD_TAG = -1


def make_corpus(n, rng):
    """Sentences of 8 to 26 words; names and places are runs of words after trigger words."""
    corpus = []
    for _ in range(n):
        length = int(np.clip(rng.normal(18, 3), 8, 26))
        words, tags = [], []
        while len(words) < length:
            r = rng.random()
            if r < 0.12:                                    # a person: trigger 1, two words of 100..299
                words += [1, *rng.integers(100, 300, 2)]
                tags += [0, 1, 2]
            elif r < 0.24:                                  # a place: trigger 2, words of 200..399
                words += [2, *rng.integers(200, 400, 2)]
                tags += [0, 3, 4]
            else:
                words.append(rng.integers(3, VOCAB))
                tags.append(0)
        corpus.append((np.array(words[:length], np.int32), np.array(tags[:length], np.int32)))
    return corpus


def collate(sentences):
    longest = max(len(w) for w, _ in sentences)
    words = np.zeros((len(sentences), longest), np.int32)
    tags = np.full((len(sentences), longest), PAD_TAG, np.int32)
    for i, (w, t) in enumerate(sentences):
        words[i, :len(w)], tags[i, :len(w)] = w, t
    return words, tags


def init_params(key):
    keys = jax.random.split(key, 6)
    glorot = jax.nn.initializers.glorot_normal()
    gru = lambda k1, k2: {"wx": glorot(k1, (EMB, 3 * HID)), "wh": glorot(k2, (HID, 3 * HID)), "b": jnp.zeros(3 * HID)}
    return {"emb": jax.random.normal(keys[0], (VOCAB, EMB)) * 0.1,
            "fwd": gru(keys[1], keys[2]), "bwd": gru(keys[3], keys[4]),
            "out": glorot(keys[5], (2 * HID, len(TAGS))), "out_b": jnp.zeros(len(TAGS))}


def run_gru(p, xs, reverse):
    gates = xs @ p["wx"] + p["b"]

    def cell(h, g):
        gz, gr, gn = jnp.split(g, 3, -1)
        hz, hr, hn = jnp.split(h @ p["wh"], 3, -1)
        z, r = jax.nn.sigmoid(gz + hz), jax.nn.sigmoid(gr + hr)
        h = (1 - z) * jnp.tanh(gn + r * hn) + z * h
        return h, h

    h0 = jnp.zeros((xs.shape[1], HID))
    return jax.lax.scan(cell, h0, gates, reverse=reverse)[1]


def logits_fn(params, words):
    xs = params["emb"][words].swapaxes(0, 1)
    hs = jnp.concatenate([run_gru(params["fwd"], xs, False), run_gru(params["bwd"], xs, True)], -1)
    return (hs @ params["out"] + params["out_b"]).swapaxes(0, 1)


optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(4e-3))


@partial(jax.jit, donate_argnums=(0, 1))
def train_step(params, opt_state, words, tags):
    def loss_fn(p):
        nll = optax.softmax_cross_entropy_with_integer_labels(logits_fn(p, words), jnp.maximum(tags, 0))
        keep = tags != PAD_TAG
        return (nll * keep).sum() / keep.sum()
    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


@jax.jit
def predict(params, words):
    return logits_fn(params, words).argmax(-1)


def entity_scores(params, sentences):
    """Precision and recall over non-O tokens."""
    tp = fp = fn = 0
    for s in range(0, len(sentences), BATCH):
        chunk = sentences[s:s + BATCH]
        words, _ = collate(chunk)
        pred = predict(params, words)
        for i, (w, gold) in enumerate(chunk):
            for t in range(len(w)):
                p = int(pred[i, t])
                tp += p == gold[t] and p != 0
                fp += p != gold[t] and p != 0
                fn += p != gold[t] and gold[t] != 0
    return tp / max(tp + fp, 1), tp / max(tp + fn, 1)


if __name__ == "__main__":
    rng = np.random.default_rng(1)
    train, dev = make_corpus(1280, rng), make_corpus(320, rng)
    params = init_params(jax.random.key(0))
    opt_state = optimizer.init(params)
    for epoch in range(EPOCHS):
        t0 = time.time()
        order, losses = rng.permutation(len(train)), []
        for s in range(0, len(order), BATCH):
            params, opt_state, loss = train_step(params, opt_state, *collate([train[j] for j in order[s:s + BATCH]]))
            losses.append(loss)
        precision, recall = entity_scores(params, dev)
        print(f"epoch {epoch}  loss {np.mean(jax.device_get(losses)):.4f}  P {precision:.3f}  R {recall:.3f}  {time.time() - t0:.1f} s")
