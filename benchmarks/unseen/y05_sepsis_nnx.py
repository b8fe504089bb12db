"""Early warning of sepsis from hourly vital signs: a GRU in Flax NNX."""
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

HOURS, SIGNALS = 24, 7


@dataclass
class Settings:
    patients: int = 800
    held_out: int = 300
    batch_size: int = 32
    epochs: int = 5
    hidden: int = 32
    lr: float = 2e-3
    max_drop: float = 0.4


class VitalsDataset:
    """Admissions kept on the device; the records are normalised once."""

    def __init__(self, n, rng):
        base = rng.normal(0, 0.6, (n, 1, SIGNALS))
        walk = np.cumsum(rng.normal(0, 0.15, (n, HOURS, SIGNALS)), axis=1)
        label = rng.random(n) < 0.3
        onset = rng.integers(8, 20, n)
        ramp = np.clip(np.arange(HOURS)[None] - onset[:, None], 0, None) * 0.12 * label[:, None]
        x = base + walk
        x[..., 0] += ramp           # heart rate
        x[..., 1] -= ramp * 0.8     # blood pressure
        x[..., 2] += ramp * 0.5     # temperature
        missing = rng.random(x.shape) < 0.15
        x[missing] = 0.0
        x = np.concatenate([x, (~missing).astype(float)], axis=-1)
        self.records = jnp.asarray(x, jnp.float32)
        self.labels = jnp.asarray(label, jnp.float32)

    def __len__(self):
        return self.records.shape[0]

    def __getitem__(self, i):
        return self.records[i], self.labels[i]


class DataLoader:
    def __init__(self, dataset, batch_size, rng):
        self.dataset, self.batch_size, self.rng = dataset, batch_size, rng

    def __len__(self):
        return len(self.dataset) // self.batch_size

    def __iter__(self):
        order = self.rng.permutation(len(self.dataset))
        for b in range(len(self)):
            items = [self.dataset[int(i)] for i in order[b * self.batch_size:(b + 1) * self.batch_size]]
            records, labels = zip(*items)
            yield jnp.stack(records), jnp.stack(labels)


class SepsisNet(nnx.Module):
    def __init__(self, hidden, rngs: nnx.Rngs):
        self.inp = nnx.Linear(2 * SIGNALS, hidden, rngs=rngs)
        self.rnn = nnx.RNN(nnx.GRUCell(hidden, hidden, rngs=rngs))
        self.norm = nnx.LayerNorm(hidden, rngs=rngs)
        self.drop = nnx.Dropout(0.0, rngs=rngs)
        self.head = nnx.Linear(hidden, 1, rngs=rngs)

    def __call__(self, x):
        h = nnx.relu(self.inp(x))
        h = self.rnn(h)
        h = self.norm(jnp.concatenate([h[:, -6:].mean(1, keepdims=True), h[:, -1:]], 1).max(1))
        return self.head(self.drop(h))[:, 0]


def bce(model, records, labels):
    logits = model(records)
    return optax.sigmoid_binary_cross_entropy(logits, labels).mean()


@nnx.jit
def train_step(model: SepsisNet, optimizer: nnx.Optimizer, records, labels):
    loss, grads = nnx.value_and_grad(bce)(model, records, labels)
    optimizer.update(model, grads)
    return loss


@nnx.jit
def score(model: SepsisNet, records):
    return nnx.sigmoid(model(records))


def auroc(p, y):
    order = np.argsort(p)
    rank = np.empty(len(p))
    rank[order] = np.arange(1, len(p) + 1)
    pos = y > 0.5
    return (rank[pos].sum() - pos.sum() * (pos.sum() + 1) / 2) / (pos.sum() * (~pos).sum())


def main():
    cfg = Settings()
    rng = np.random.default_rng(21)
    train_set, test_set = VitalsDataset(cfg.patients, rng), VitalsDataset(cfg.held_out, rng)
    loader = DataLoader(train_set, cfg.batch_size, rng)
    model = SepsisNet(cfg.hidden, nnx.Rngs(params=0, dropout=1))
    optimizer = nnx.Optimizer(model, optax.adamw(cfg.lr), wrt=nnx.Param)
    labels = np.asarray(test_set.labels)

    for epoch in range(cfg.epochs):
        model.train()
        model.drop.rate = cfg.max_drop * epoch / (cfg.epochs - 1)
        losses = []
        for records, y in loader:
            losses.append(train_step(model, optimizer, records, y))
        model.eval()
        p = np.asarray(score(model, test_set.records))
        print(f"epoch {epoch}  loss {np.mean(jax.device_get(losses)):.4f}  "
              f"AUROC {auroc(p, labels):.3f}  drop {model.drop.rate:.2f}")


if __name__ == "__main__":
    main()
