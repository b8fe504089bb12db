"""Four-fold cross-validation of a small survival model (discrete-time hazards) over ridge strengths."""
import itertools
import math

import torch
import torch.nn.functional as F
from torch import nn

N, D, BINS = 1500, 18, 12


def cohort(seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(N, D, generator=g)
    beta = torch.randn(D, generator=g) * 0.4
    risk = x @ beta + 0.5 * torch.tanh(x[:, 0] * x[:, 1])
    hazard = torch.sigmoid(risk[:, None] - 2.5 + 0.1 * torch.arange(BINS))
    death = torch.rand(N, BINS, generator=g) < hazard
    ever = death.any(1)
    time = torch.where(ever, death.int().argmax(1), torch.full((N,), BINS - 1))
    censor = torch.randint(3, BINS, (N,), generator=g)
    event = ever & (time <= censor)
    time = torch.minimum(time, censor)
    return x, time, event.float()


class Hazard(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(D, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.out = nn.Linear(width, BINS)

    def forward(self, x):
        return self.out(self.body(x))


def survival_nll(logits, time, event):
    """Log-likelihood of surviving the bins before `time` and dying (or not) in it."""
    bins = torch.arange(BINS)
    before = (bins[None] < time[:, None]).float()
    at = (bins[None] == time[:, None]).float()
    log_surv = F.logsigmoid(-logits)
    log_haz = F.logsigmoid(logits)
    ll = (before * log_surv).sum(1) + (at * (event[:, None] * log_haz + (1 - event[:, None]) * log_surv)).sum(1)
    return -ll.mean()


def concordance(risk, time, event):
    earlier = (time[:, None] < time[None]) & (event[:, None] > 0)
    better = (risk[:, None] > risk[None]).float() + 0.5 * (risk[:, None] == risk[None]).float()
    return (better * earlier).sum().item() / max(earlier.sum().item(), 1)


def folds(n, k, seed=3):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    parts = order.chunk(k)
    for i in range(k):
        yield torch.cat([p for j, p in enumerate(parts) if j != i]), parts[i]


def train_one(x, time, event, width, ridge, epochs=12, batch=225):
    model = Hazard(width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.0)

    def objective(bx, bt, be):
        penalty = sum(p.square().sum() for p in model.parameters())
        return survival_nll(model(bx), bt, be) + ridge * penalty

    objective = torch.compile(objective, backend="aot_eager")
    g = torch.Generator().manual_seed(11)
    for epoch in range(epochs):
        for pick in torch.randperm(len(x), generator=g).split(batch):
            loss = objective(x[pick], time[pick], event[pick])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
    return model, loss.item()


def main():
    torch.manual_seed(0)
    x, time, event = cohort()
    print(f"patients {N}, events {int(event.sum())}")
    results = {}
    for width, ridge in itertools.product([32], [0.0001 * 2**k for k in range(8)]):
        scores = []
        for train, test in folds(N, 4):
            mean, std = x[train].mean(0), x[train].std(0)
            model, last = train_one((x[train] - mean) / std, time[train], event[train], width, ridge)
            with torch.no_grad():
                logits = model((x[test] - mean) / std)
            scores.append(concordance(logits.sum(1), time[test], event[test]))
        m = sum(scores) / len(scores)
        sd = math.sqrt(sum((s - m) ** 2 for s in scores) / (len(scores) - 1))
        results[width, ridge] = m
        print(f"width {width} ridge {ridge:.4f}: concordance {m:.4f} +- {sd:.4f}, last loss {last:.4f}")
    best = max(results, key=results.get)
    print("best", best, f"{results[best]:.4f}")


if __name__ == "__main__":
    main()
