"""Active learning for soil classes: train, score what is unlabelled, ask the oracle for the most doubtful, repeat."""
import argparse
import io
import torch
from torch import nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

DIM, CLASSES = 20, 7


class SoilNet(nn.Module):
    def __init__(self, h=192):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(DIM, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, CLASSES))

    def forward(self, x):
        return self.net(x)


class Pool:
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        centres = torch.randn(CLASSES, DIM, generator=g)
        self.y = torch.randint(0, CLASSES, (n,), generator=g)
        self.x = centres[self.y] + 1.3 * torch.randn(n, DIM, generator=g)
        self.known = torch.zeros(n, dtype=torch.bool)
        self.known[torch.randperm(n, generator=g)[:64]] = True
        self.g = g

    def unknown(self):
        idx = torch.arange(len(self.y))[~self.known]
        return idx, self.x[idx]

    def label(self, idx):
        self.known[idx] = True

    def draw(self, size):
        idx = torch.arange(len(self.y))[self.known]
        pick = idx[torch.randint(0, len(idx), (size,), generator=self.g)]
        return self.x[pick], self.y[pick]


class Keeper:
    """Keeps the best weights seen so far, for the oracle's web page."""

    def __init__(self):
        self.latest, self.steps = None, 0

    def __call__(self, model):
        self.steps += 1
        blob = io.BytesIO()
        torch.save({k: v.cpu() for k, v in model.state_dict().items()}, blob)
        self.latest = blob.getvalue()


def entropy(logits):
    logp = logits.log_softmax(-1)
    return -(logp.exp() * logp).sum(-1)


def ask(model, pool, device, k):
    idx, x = pool.unknown()
    with torch.no_grad():
        doubt = entropy(model(x.to(device)))
        worst = doubt.topk(k).indices
    return idx[worst.cpu()]


def train_round(model, opt, pool, device, steps, batch, after_step):
    loss = None
    for _ in range(steps):
        x, y = (t.to(device) for t in pool.draw(batch))
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        xm.mark_step()
        after_step(model)
    return loss


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--rounds", type=int, default=6)
    ap.add_argument("--steps", type=int, default=30)
    ap.add_argument("--ask", type=int, default=48)
    a = ap.parse_args()
    torch.manual_seed(0)
    device = torch_xla.device()
    pool = Pool(3000, seed=2)
    model = SoilNet().to(device)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    keeper = Keeper()
    for r in range(a.rounds):
        loss = train_round(model, opt, pool, device, a.steps, 64, keeper)
        pool.label(ask(model, pool, device, a.ask))
        print(f"round {r} labelled {int(pool.known.sum())} loss {loss.item():.4f}")
    print("kept", len(keeper.latest), "bytes")


if __name__ == "__main__":
    main()
