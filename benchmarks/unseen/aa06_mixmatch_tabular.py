"""MixMatch-style semi-supervised training on tabular rows with an annealed sharpening temperature."""
import argparse

import numpy as np
import torch_xla
import torch_xla.core.xla_model as xm
import torch
import torch.nn as nn
import torch.nn.functional as F

FEATURES, CLASSES = 20, 5


def make_rows(n, rng):
    centers = np.random.RandomState(4).randn(CLASSES, FEATURES) * 1.2
    y = rng.integers(0, CLASSES, n)
    x = centers[y] + rng.normal(size=(n, FEATURES))
    return x.astype(np.float32), y.astype(np.int64)


class Net(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        return self.head(self.body(x))


def temperature_at(step, total, start=1.0, end=0.4):
    return start + (end - start) * step / total


def guess_labels(model, views, temperature):
    with torch.no_grad():
        p = sum(F.softmax(model(v), dim=-1) for v in views) / len(views)
        p = p ** (1.0 / temperature)
        return p / p.sum(-1, keepdim=True)


def mixup(x, y, rng, alpha=0.75):
    lam = float(rng.beta(alpha, alpha))
    lam = max(lam, 1 - lam)
    perm = torch.from_numpy(rng.permutation(x.shape[0])).to(x.device)
    return lam * x + (1 - lam) * x[perm], lam * y + (1 - lam) * y[perm]


def train_step(model, optimizer, labelled, unlabelled, temperature, weight, rng, device):
    x = torch.from_numpy(labelled[0]).to(device)
    y = F.one_hot(torch.from_numpy(labelled[1]), CLASSES).float().to(device)
    base = torch.from_numpy(unlabelled).to(device)
    views = [base + 0.1 * torch.randn_like(base) for _ in range(2)]
    q = guess_labels(model, views, temperature)
    inputs = torch.cat([x, *views])
    targets = torch.cat([y, q, q])
    mixed_x, mixed_y = mixup(inputs, targets, rng)
    logits = model(mixed_x)
    n = x.shape[0]
    sup = -(F.log_softmax(logits[:n], -1) * mixed_y[:n]).sum(-1).mean()
    unsup = (F.softmax(logits[n:], -1) - mixed_y[n:]).pow(2).mean()
    loss = sup + weight * unsup
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return torch.stack([sup.detach(), unsup.detach()])


@torch.no_grad()
def test_accuracy(model, x, y, device, batch=64):
    hits = torch.zeros((), device=device, dtype=torch.long)
    for i in range(0, len(x), batch):
        logits = model(torch.from_numpy(x[i:i + batch]).to(device))
        hits += (logits.argmax(-1) == torch.from_numpy(y[i:i + batch]).to(device)).sum()
        xm.mark_step()
    return hits.item() / len(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warmup", type=int, default=40)
    parser.add_argument("--batch", type=int, default=16)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    device = xm.xla_device()
    xl, yl = make_rows(64, rng)
    xu, _ = make_rows(1024, rng)
    xt, yt = make_rows(256, rng)
    model = Net().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    for step in range(args.warmup):
        pick = rng.choice(len(xl), args.batch, replace=False)
        loss = F.cross_entropy(model(torch.from_numpy(xl[pick]).to(device)), torch.from_numpy(yl[pick]).to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        xm.mark_step()
    print(f"supervised accuracy {test_accuracy(model, xt, yt, device):.3f}", flush=True)

    losses = torch.zeros(2, device=device)
    for step in range(args.steps):
        pick = rng.choice(len(xl), args.batch, replace=False)
        upick = rng.choice(len(xu), args.batch * 2, replace=False)
        losses += train_step(model, optimizer, (xl[pick], yl[pick]), xu[upick],
                             temperature_at(step, args.steps), 0.5 + 10.0 * step / args.steps, rng, device)
        xm.mark_step()
    sup, unsup = (losses / args.steps).tolist()
    print(f"sup {sup:.3f} unsup {unsup:.4f} accuracy {test_accuracy(model, xt, yt, device):.3f}")


if __name__ == "__main__":
    main()
