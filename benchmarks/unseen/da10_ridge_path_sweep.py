"""Cross-validated penalties for a robust additive model; each fit is a compiled gradient step (inductor)."""
import itertools
import time

import numpy as np
import torch

FOLDS, STEPS = 3, 200
L1 = (0.0, 1e-3, 3e-3)
HUBER = (0.5, 1.0)


def simulate(n=900, p=24, seed=4):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (n, p))
    y = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] ** 2 - np.abs(x[:, 2]) + 0.2 * rng.standard_t(2, n)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)


def basis(x, knots=6):
    """Piecewise linear features of each column."""
    at = torch.linspace(-1.6, 1.6, knots)
    return torch.cat([x, (x[..., None] - at).clamp_min(0).flatten(1)], 1)


def soft_threshold(w, by):
    return torch.sign(w) * torch.clamp_min(w.abs() - by, 0)


def make_step(l1, delta, lr=0.02, momentum=0.9):
    """One proximal gradient step of the Huber loss with an L1 penalty."""

    @torch.compile
    def step(w, b, vw, vb, x, y):
        r = x @ w + b - y
        g = torch.where(r.abs() <= delta, r, delta * torch.sign(r)) / len(y)
        vw = momentum * vw + x.T @ g
        vb = momentum * vb + g.sum()
        w = soft_threshold(w - lr * vw, lr * l1)
        b = b - lr * vb
        return w, b, vw, vb

    return step


@torch.compile
def median_error(w, b, x, y):
    return (x @ w + b - y).abs().median()


def fit(x, y, l1, delta):
    step = make_step(l1, delta)
    w = torch.zeros(x.shape[1])
    b = torch.zeros(())
    vw, vb = torch.zeros_like(w), torch.zeros_like(b)
    for _ in range(STEPS):
        w, b, vw, vb = step(w, b, vw, vb, x, y)
    return w, b


def folds(n, k, seed=0):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    parts = order.view(k, n // k)
    for i in range(k):
        yield torch.cat([parts[j] for j in range(k) if j != i]), parts[i]


def standardise(train, test):
    mean, std = train.mean(0), train.std(0)
    return (train - mean) / std, (test - mean) / std


def main():
    torch.manual_seed(0)
    x, y = simulate()
    features = basis(x)
    print(f"{len(y)} rows, {features.shape[1]} features, {len(L1) * len(HUBER)} settings, {FOLDS} folds")
    table = {}
    start = time.perf_counter()
    for l1, delta in itertools.product(L1, HUBER):
        errors, kept = [], []
        for tr, te in folds(len(y), FOLDS):
            a, b = standardise(features[tr], features[te])
            w, c = fit(a, y[tr], l1, delta)
            errors.append(median_error(w, c, b, y[te]).item())
            kept.append(int((w.abs() > 1e-6).sum()))
        table[l1, delta] = np.mean(errors)
        print(f"l1 {l1:.4f} delta {delta:.1f}: error {np.mean(errors):.4f}, features {np.mean(kept):.0f}")
    best = min(table, key=table.get)
    print(f"best: l1 {best[0]}, delta {best[1]} ({time.perf_counter() - start:.1f} s)")
    w, b = fit((features - features.mean(0)) / features.std(0), y, *best)
    strength = w.abs()[: x.shape[1]]
    print("strongest linear columns:", strength.topk(3).indices.tolist())


if __name__ == "__main__":
    main()
