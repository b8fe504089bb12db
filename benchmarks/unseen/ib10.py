"""Gradient boosting with small neural learners (GrowNet style) for house-price-like data."""
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--rows", type=int, default=6000)
ap.add_argument("--stages", type=int, default=12)
ap.add_argument("--epochs", type=int, default=4)
ap.add_argument("--shrinkage", type=float, default=0.5)
ap.add_argument("--batch", type=int, default=512)
opt_args = ap.parse_args()

# every stage is a larger ensemble, so give the compiler room
torch._dynamo.config.recompile_limit = 4 * opt_args.stages


def housing(n, seed=4):
    g = torch.Generator().manual_seed(seed)
    area = 40 + 160 * torch.rand(n, generator=g)
    rooms = (area / 28 + torch.randn(n, generator=g)).round().clamp(1, 9)
    lat, lon = torch.rand(n, generator=g), torch.rand(n, generator=g)
    year = 1900 + 120 * torch.rand(n, generator=g)
    centre = torch.exp(-((lat - 0.4) ** 2 + (lon - 0.6) ** 2) / 0.05)
    river = torch.exp(-((lat - 0.3 * torch.sin(6 * lon) - 0.5) / 0.06) ** 2)
    price = (2.2 * area / 100 * (1 + centre) + 0.5 * river + 0.1 * rooms
             + 0.4 * (year > 1995) + 0.3 * (year < 1930) * centre + 0.15 * torch.randn(n, generator=g))
    x = torch.stack([area, rooms, lat, lon, year], 1)
    noise = torch.randn(n, 11, generator=g)              # columns that mean nothing
    return torch.cat([(x - x.mean(0)) / x.std(0), noise], 1), price


class Learner(nn.Module):
    def __init__(self, features, width=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(features, width), nn.GELU(), nn.LayerNorm(width),
                                 nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x)[:, 0]


class Boosted(nn.Module):
    """Sum of the learners fitted so far; the last one is the one in training."""

    def __init__(self, base, shrinkage):
        super().__init__()
        self.base, self.shrinkage = base, shrinkage
        self.learners = nn.ModuleList()

    def grow(self, learner):
        for p in self.learners.parameters():
            p.requires_grad_(False)
        self.learners.append(learner)

    def forward(self, x):
        total = torch.full((len(x),), self.base)
        for learner in self.learners:
            total = total + self.shrinkage * learner(x)
        return total


class EarlyStop:
    def __init__(self, patience=3):
        self.best, self.bad, self.patience = float("inf"), 0, patience

    def __call__(self, value):
        self.bad = 0 if value < self.best - 1e-4 else self.bad + 1
        self.best = min(self.best, value)
        return self.bad >= self.patience


def fit_stage(model, compiled, x, y, epochs, batch, generator):
    """Fits the newest learner on the residual that the frozen ones leave."""
    optimiser = torch.optim.AdamW(model.learners[-1].parameters(), lr=4e-3)
    total, count = torch.zeros(()), 0
    for _ in range(epochs):
        perm = torch.randperm(len(x), generator=generator)
        for i in range(0, len(x) - batch + 1, batch):
            rows = perm[i:i + batch]
            loss = (compiled(x[rows]) - y[rows]).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += loss.detach()
            count += 1
    return (total / count).item()


@torch.no_grad()
def validate(model, x, y):
    """Whole set at once, uncompiled: one call per stage."""
    residual = model(x) - y
    return residual.square().mean().sqrt().item(), residual.abs().median().item()


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    x, y = housing(opt_args.rows)
    cut = int(0.8 * len(x))
    model = Boosted(y[:cut].mean().item(), opt_args.shrinkage)
    compiled = torch.compile(model, backend="aot_eager")
    stop = EarlyStop()
    print(f"{cut} rows to learn from, price spread {y.std().item():.3f}")
    for stage in range(opt_args.stages):
        model.grow(Learner(x.shape[1]))
        train = fit_stage(model, compiled, x[:cut], y[:cut], opt_args.epochs, opt_args.batch, generator)
        rmse, mad = validate(model, x[cut:], y[cut:])
        print(f"stage {stage + 1:2d}: train mse {train:.4f} test rmse {rmse:.4f} median error {mad:.4f}", flush=True)
        if stop(rmse):
            break
    scale = torch.stack([l.net[0].weight.abs().mean(0) for l in model.learners]).mean(0)
    print("most used columns:", scale.topk(4).indices.tolist(), f"best rmse {stop.best:.4f}")


if __name__ == "__main__":
    main()
