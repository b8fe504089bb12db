"""Multi-task model for lab assays; every batch carries the assays that were measured in its plate."""
import argparse
import itertools
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

ASSAYS = ["solub", "logd", "herg", "cyp3a4", "ppb", "clint"]


class ResidualMLP(nn.Module):
    def __init__(self, dim, depth):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.SiLU(), nn.Dropout(0.1), nn.Linear(dim, dim))
            for _ in range(depth)
        )

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


class AssayModel(nn.Module):
    def __init__(self, bits, dim=192, depth=4):
        super().__init__()
        self.inp = nn.Linear(bits, dim)
        self.trunk = ResidualMLP(dim, depth)
        self.heads = nn.ModuleDict({a: nn.Linear(dim, 2) for a in ASSAYS})

    def forward(self, fp, targets):
        h = self.trunk(self.inp(fp))
        total = fp.new_zeros(())
        for name, y in targets.items():
            mean, logvar = self.heads[name](h).unbind(-1)
            total = total + (0.5 * (logvar + (y - mean) ** 2 / logvar.exp())).mean()
        return total / len(targets)


class PlateStream:
    """Plates come in with two to four assays each."""

    def __init__(self, n, bits, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.fp = (torch.rand(n, bits, generator=g) < 0.08).float()
        w = torch.randn(bits, len(ASSAYS), generator=g) / 8
        self.y = self.fp @ w + 0.1 * torch.randn(n, len(ASSAYS), generator=g)
        panels = [c for k in (2, 3, 4) for c in itertools.combinations(range(len(ASSAYS)), k)]
        self.rng = random.Random(seed)
        self.panels = self.rng.sample(panels, 24)
        self.gen = g

    def plates(self, count, size):
        for _ in range(count):
            i = torch.randint(0, len(self.fp), (size,), generator=self.gen)
            panel = self.rng.choice(self.panels)
            yield self.fp[i], {ASSAYS[k]: self.y[i, k] for k in panel}


def parse():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=300)
    ap.add_argument("--plate", type=int, default=96)
    ap.add_argument("--bits", type=int, default=512)
    ap.add_argument("--lr", type=float, default=7e-4)
    return ap.parse_args()


def main():
    a = parse()
    torch.manual_seed(1)
    stream = PlateStream(4000, a.bits)
    net = AssayModel(a.bits)
    model = torch.compile(net, backend="aot_eager")
    opt = torch.optim.AdamW(net.parameters(), lr=a.lr)
    warm = torch.optim.lr_scheduler.LinearLR(opt, 0.1, 1.0, total_iters=50)
    total = torch.zeros(())
    for step, (fp, targets) in enumerate(stream.plates(a.steps, a.plate), 1):
        loss = model(fp, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        opt.step()
        warm.step()
        opt.zero_grad(set_to_none=True)
        total += loss.detach()
        if step % 100 == 0:
            print(f"{step:4d}  nll {total.item() / 100:.3f}")
            total.zero_()


if __name__ == "__main__":
    main()
