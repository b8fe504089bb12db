"""Sequence-to-sequence translation of written dates ("the 3rd of may 1987") to ISO form, with beam search.

flax linen encoder-decoder, trained with teacher forcing, evaluated by beam decoding.
"""
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

MONTHS = "january february march april may june july august september october november december".split()
CHARS = "\x00\x01\x02 abcdefghijklmnopqrstuvwxyz0123456789-,/"
PAD, BOS, EOS = 0, 1, 2
IDX = {c: i for i, c in enumerate(CHARS)}
SRC_LEN, TGT_LEN = 28, 12


def written_date(rng):
    y, m, d = rng.integers(1950, 2050), rng.integers(1, 13), rng.integers(1, 29)
    suffix = {1: "st", 2: "nd", 3: "rd"}.get(d % 10 if d // 10 != 1 else 0, "th")
    name = MONTHS[m - 1]
    styles = [f"the {d}{suffix} of {name} {y}", f"{name} {d}, {y}", f"{d} {name[:3]} {y}", f"{d}/{m}/{y}"]
    return styles[rng.integers(len(styles))], f"{y:04d}-{m:02d}-{d:02d}"


def encode(text, size, wrap=False):
    ids = [IDX[c] for c in text]
    ids = [BOS] + ids + [EOS] if wrap else ids
    return ids + [PAD] * (size - len(ids))


def corpus(n, seed):
    rng = np.random.default_rng(seed)
    pairs = [written_date(rng) for _ in range(n)]
    src = np.array([encode(s, SRC_LEN) for s, _ in pairs], np.int32)
    tgt = np.array([encode(t, TGT_LEN, wrap=True) for _, t in pairs], np.int32)
    return src, tgt, pairs


class Layer(nn.Module):
    width: int

    @nn.compact
    def __call__(self, h, mask, memory=None, memory_mask=None):
        a = nn.LayerNorm()(h)
        h = h + nn.MultiHeadDotProductAttention(4)(a, a, mask=mask)
        if memory is not None:
            h = h + nn.MultiHeadDotProductAttention(4)(nn.LayerNorm()(h), memory, mask=memory_mask)
        return h + nn.Dense(self.width)(nn.gelu(nn.Dense(2 * self.width)(nn.LayerNorm()(h))))


class DateTranslator(nn.Module):
    width: int = 64
    depth: int = 2

    def setup(self):
        self.embed = nn.Embed(len(CHARS), self.width)
        self.place = self.param("place", nn.initializers.normal(0.05), (SRC_LEN, self.width))
        self.enc = [Layer(self.width) for _ in range(self.depth)]
        self.dec = [Layer(self.width) for _ in range(self.depth)]
        self.out = nn.Dense(len(CHARS))

    def encode(self, src):
        h = self.embed(src) + self.place[: src.shape[1]]
        for layer in self.enc:
            h = layer(h, nn.make_attention_mask(src != PAD, src != PAD))
        return h

    def decode(self, memory, src, tgt):
        h = self.embed(tgt) + self.place[: tgt.shape[1]]
        cross = nn.make_attention_mask(tgt >= 0, src != PAD)
        for layer in self.dec:
            h = layer(h, nn.make_causal_mask(tgt), memory, cross)
        return self.out(h)

    def __call__(self, src, tgt):
        return self.decode(self.encode(src), src, tgt)


def make_trainer(model, tx):
    @jax.jit
    def step(params, opt_state, src, tgt):
        def loss_fn(p):
            logits = model.apply(p, src, tgt[:, :-1])
            return optax.softmax_cross_entropy_with_integer_labels(logits, tgt[:, 1:]).mean()

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    return step


class BeamTranslator:
    """Beam search over a batch of sources; hypotheses of one source are neighbours in the batch."""

    def __init__(self, model, params, beam=4):
        self.params, self.beam = params, beam
        self.next_scores = jax.jit(lambda p, src, hyp: jax.nn.log_softmax(model.apply(p, src, hyp)[:, -1]))

    def __call__(self, src):
        n, k = len(src), self.beam
        src = jnp.repeat(src, k, axis=0)
        hyp = np.full((n * k, 1), BOS, np.int32)
        score = np.tile([0.0] + [-1e9] * (k - 1), n)
        for _ in range(TGT_LEN - 1):
            logp = np.array(self.next_scores(self.params, src, hyp))
            ended = hyp[:, -1] == EOS
            logp[ended] = -1e9
            logp[ended, EOS] = 0.0
            total = (score[:, None] + logp).reshape(n, -1)
            top = np.argsort(-total, axis=1)[:, :k]
            parent = (top // logp.shape[1] + np.arange(n)[:, None] * k).ravel()
            hyp = np.concatenate([hyp[parent], (top % logp.shape[1]).reshape(-1, 1).astype(np.int32)], 1)
            score = np.take_along_axis(total, top, 1).ravel()
        return ["".join(CHARS[c] for c in row if c > EOS) for row in hyp[::k]]


def main(epochs=4, batch=64):
    src, tgt, _ = corpus(4096, 0)
    model = DateTranslator()
    params = jax.jit(model.init)(jax.random.key(0), src[:2], tgt[:2, :-1])
    steps = epochs * len(src) // batch
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.warmup_cosine_decay_schedule(0.0, 3e-3, 50, steps)))
    opt_state = tx.init(params)
    step = make_trainer(model, tx)
    rng = np.random.default_rng(0)
    for epoch in range(epochs):
        t0, order, losses = time.time(), rng.permutation(len(src)), []
        for i in range(0, len(order), batch):
            idx = order[i : i + batch]
            params, opt_state, loss = step(params, opt_state, src[idx], tgt[idx])
            losses.append(loss)
        print(f"epoch {epoch}  loss {float(jnp.stack(losses).mean()):.4f}  {time.time() - t0:.1f}s")
    translate = BeamTranslator(model, params)
    test_src, _, pairs = corpus(1536, 1)
    t0, answers = time.time(), []
    for i in range(0, len(test_src), 64):
        answers += translate(test_src[i : i + 64])
    right = sum(a == t for a, (_, t) in zip(answers, pairs))
    print(f"exact {right}/{len(pairs)}   beam search {time.time() - t0:.1f}s   e.g. {pairs[0][0]!r} -> {answers[0]}")


if __name__ == "__main__":
    main()
