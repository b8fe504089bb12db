"""Protein secondary structure (Q3: helix, strand, coil) from sequence, with flax.nnx.

Training uses two crop lengths; the held-out chains are scored whole, as CASP does.
"""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

AMINO = 20
STATES = 3
CROPS = (96, 192)


def make_chain(rng, length):
    """Segments of one state; each state prefers its own residues (Chou-Fasman in spirit)."""
    prefer = np.array([[3.0] * 7 + [1.0] * 13, [1.0] * 7 + [3.0] * 6 + [1.0] * 7,
                       [1.0] * 13 + [3.0] * 7])
    prefer /= prefer.sum(1, keepdims=True)
    labels = []
    while len(labels) < length:
        labels += [int(rng.integers(STATES))] * int(rng.integers(4, 15))
    labels = np.array(labels[:length], np.int32)
    seq = np.array([rng.choice(AMINO, p=prefer[s]) for s in labels], np.int32)
    return seq, labels


class Block(nnx.Module):
    def __init__(self, dim, dilation, rngs):
        self.norm1 = nnx.LayerNorm(dim, rngs=rngs)
        self.conv = nnx.Conv(dim, dim, kernel_size=(7,), kernel_dilation=dilation, rngs=rngs)
        self.norm2 = nnx.LayerNorm(dim, rngs=rngs)
        self.gate = nnx.Linear(dim, 2 * dim, rngs=rngs)
        self.out = nnx.Linear(dim, dim, rngs=rngs)

    def __call__(self, x):
        x = x + jax.nn.gelu(self.conv(self.norm1(x)))
        a, b = jnp.split(self.gate(self.norm2(x)), 2, axis=-1)
        return x + self.out(a * jax.nn.sigmoid(b))


class StructureNet(nnx.Module):
    def __init__(self, dim, rngs):
        self.embed = nnx.Embed(AMINO, dim, rngs=rngs)
        self.blocks = nnx.List([Block(dim, d, rngs) for d in (1, 3)])
        self.head = nnx.Linear(dim, STATES, rngs=rngs)

    def __call__(self, seq):
        x = self.embed(seq)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def loss_fn(model, seq, labels):
    return optax.softmax_cross_entropy_with_integer_labels(model(seq), labels).mean()


@nnx.jit
def train_step(model, optimizer, seq, labels):
    loss, grads = nnx.value_and_grad(loss_fn)(model, seq, labels)
    optimizer.update(model, grads)
    return loss


def crop_batch(rng, chains, length, batch):
    picked = [c for c in rng.permutation(len(chains)) if len(chains[c][0]) >= length][:batch]
    seqs, labels = [], []
    for c in picked:
        start = rng.integers(0, len(chains[c][0]) - length + 1)
        seqs.append(chains[c][0][start:start + length])
        labels.append(chains[c][1][start:start + length])
    return np.stack(seqs), np.stack(labels)


def segment_overlap(pred, truth):
    """Share of true segments of which more than half is predicted right."""
    cuts = np.flatnonzero(np.diff(truth)) + 1
    hits = [np.mean(p == t) > 0.5
            for p, t in zip(np.split(pred, cuts), np.split(truth, cuts))]
    return float(np.mean(hits))


class Scorer:
    def __init__(self, chains):
        self.chains = chains

    def __call__(self, model):
        q3, sov = [], []
        for seq, labels in self.chains:
            logits = model(jnp.asarray(seq)[None])[0]
            pred = np.asarray(jnp.argmax(logits, axis=-1))
            q3.append(np.mean(pred == labels))
            sov.append(segment_overlap(pred, labels))
        return float(np.mean(q3)), float(np.mean(sov))


def main():
    rng = np.random.default_rng(0)
    train = [make_chain(rng, int(n)) for n in rng.integers(192, 360, 120)]
    heldout = [make_chain(rng, int(n)) for n in rng.permutation(np.arange(60, 420))[:18]]
    model = StructureNet(48, nnx.Rngs(1))
    optimizer = nnx.Optimizer(model, optax.adamw(2e-3), wrt=nnx.Param)
    scorer = Scorer(heldout)
    for epoch in range(2):
        losses = []
        for step in range(40):
            length = CROPS[step % 2]
            seq, labels = crop_batch(rng, train, length, 8)
            losses.append(train_step(model, optimizer, seq, labels))
        print(f"epoch {epoch} loss {float(jnp.mean(jnp.stack(losses))):.4f}", flush=True)
        q3, sov = scorer(model)
        print(f"        Q3 {q3:.3f} SOV {sov:.3f}", flush=True)


if __name__ == "__main__":
    main()
