"""Cross-validated deep Cox regression on synthetic tumour-registry data."""
import argparse
import time

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--patients", type=int, default=1200)
parser.add_argument("--folds", type=int, default=8)
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--genes", type=int, default=120)
args = parser.parse_args()


def registry(n, genes, seed=0):
    """Log-hazard depends on a few genes, an interaction and age; a third is censored."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, genes, generator=g)
    age = torch.rand(n, 1, generator=g) * 2 - 1
    log_hazard = (0.8 * x[:, 0] - 0.6 * x[:, 1] + 0.7 * x[:, 2] * x[:, 3] + 0.5 * age[:, 0])
    event_time = -torch.log(torch.rand(n, generator=g)) * torch.exp(-log_hazard)
    censoring = -torch.log(torch.rand(n, generator=g)) * 2.5
    time_ = torch.minimum(event_time, censoring)
    return torch.cat([x, age], 1), time_, (event_time <= censoring).float()


class RiskNet(nn.Module):
    def __init__(self, features, width=128, p=0.3):
        super().__init__()
        self.gate = nn.Linear(features, features)
        self.body = nn.Sequential(
            nn.Linear(features, width), nn.LayerNorm(width), nn.SiLU(), nn.Dropout(p),
            nn.Linear(width, width), nn.LayerNorm(width), nn.SiLU(), nn.Dropout(p))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        x = x * torch.sigmoid(self.gate(x))
        return self.head(self.body(x)).squeeze(-1)


def cox_loss(risk, event):
    """Breslow partial likelihood; rows are sorted by falling time."""
    log_cum = torch.logcumsumexp(risk, 0)
    return -((risk - log_cum) * event).sum() / event.sum()


def concordance(risk, time_, event):
    """Harrell's C: share of comparable pairs in the right order."""
    pair = (time_[None, :] > time_[:, None]) & (event[:, None] > 0)
    diff = risk[:, None] - risk[None, :]
    good = ((diff > 0) & pair).sum() + 0.5 * ((diff == 0) & pair).sum()
    return float(good) / max(int(pair.sum()), 1)


def fit(x, t, e, val, fold):
    """Trains one fold; returns the concordance on the held-out patients."""
    torch._dynamo.reset()                # fresh compiler state for a fresh model
    torch.manual_seed(100 + fold)
    order = torch.argsort(t, descending=True)
    x, t, e = x[order], t[order], e[order]
    net = RiskNet(x.shape[1])
    compiled = torch.compile(net, backend="aot_eager")
    loss_fn = torch.compile(cox_loss, backend="aot_eager")
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-2)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.epochs)
    best, best_state, history = 0.0, None, []
    for epoch in range(args.epochs):
        compiled.train()
        total = 0.0
        for _ in range(4):
            # a random subset, kept in time order, is a valid risk set
            pick = torch.randperm(len(x))[:384].sort().values
            loss = loss_fn(compiled(x[pick]), e[pick])
            opt.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            opt.step()
            total += loss.detach()
        sched.step()
        if epoch % 10 == 9 or epoch == args.epochs - 1:
            compiled.eval()
            with torch.no_grad():
                risk = compiled(val[0])
            c = concordance(risk, val[1], val[2])
            history.append((epoch + 1, float(total) / 4, c))
            if c > best:
                best, best_state = c, {k: v.clone() for k, v in net.state_dict().items()}
    print(f"fold {fold}: " + "  ".join(f"[{ep}] {l:.3f}/{c:.3f}" for ep, l, c in history), flush=True)
    net.load_state_dict(best_state)
    return best, net.gate.weight.abs().mean(0).detach()


def main():
    x, t, e = registry(args.patients, args.genes)
    print(f"{args.patients} patients, {int(e.sum())} events, {x.shape[1]} covariates")
    index = torch.randperm(args.patients, generator=torch.Generator().manual_seed(2))
    scores, importance = [], torch.zeros(x.shape[1])
    for fold in range(args.folds):
        held = index[fold::args.folds]
        mask = torch.ones(args.patients, dtype=torch.bool)
        mask[held] = False
        start = time.perf_counter()
        c, weight = fit(x[mask], t[mask], e[mask], (x[held], t[held], e[held]), fold)
        importance += weight / args.folds
        scores.append(c)
        print(f"   best C {c:.3f}, {time.perf_counter() - start:.1f} s", flush=True)
    s = torch.tensor(scores)
    print(f"C-index {s.mean().item():.3f} +- {s.std().item():.3f}; "
          f"strongest gates {importance.topk(4).indices.tolist()}")


if __name__ == "__main__":
    main()
