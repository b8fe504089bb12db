"""Soil carbon from spectra: a bootstrap ensemble of small networks, the spread of the members is the uncertainty."""
import argparse
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F

BANDS = 96


@dataclass
class Member:
    number: int
    rows: torch.Tensor
    losses: list = field(default_factory=list)
    predictions: torch.Tensor = None


def spectra(count, gen):
    """Absorption bands of clay, water and carbon on a slope."""
    axis = torch.linspace(0, 1, BANDS)
    centre = torch.tensor([0.2, 0.45, 0.7])
    share = torch.rand(count, 3, generator=gen)
    bands = torch.exp(-((axis - centre.unsqueeze(1)) / 0.06) ** 2)
    slope = 0.3 * torch.rand(count, 1, generator=gen) * axis
    x = 0.5 + slope - 0.4 * share @ bands + 0.01 * torch.randn(count, BANDS, generator=gen)
    carbon = share[:, 2] * (1 - 0.3 * share[:, 1])
    return x, carbon + 0.02 * torch.randn(count, generator=gen)


def make_network(hidden, smooth, dropout):
    """A network for spectra with these settings."""

    class Continuum(nn.Module):
        """Takes the slow part out of a spectrum."""

        def forward(self, x):
            slow = F.avg_pool1d(x.unsqueeze(1), smooth, stride=1, padding=smooth // 2, count_include_pad=False)
            return x - slow.squeeze(1)

    class SpectrumNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.continuum = Continuum()
            self.lift = nn.Conv1d(2, hidden, 9, stride=4)
            self.deep = nn.Conv1d(hidden, hidden, 5, stride=2)
            self.head = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.SiLU(), nn.Dropout(dropout), nn.Linear(hidden, 1))

        def forward(self, x):
            h = F.silu(self.lift(torch.stack([x, self.continuum(x)], 1)))
            h = F.silu(self.deep(h))
            return self.head(torch.cat([h.mean(-1), h.amax(-1)], 1)).squeeze(-1)

    return SpectrumNet()


class Ensemble:
    def __init__(self, args, gen):
        self.args, self.gen = args, gen
        self.members = []

    def fit_member(self, number, x, y):
        rows = torch.randint(0, len(x), (len(x),), generator=self.gen)
        member = Member(number, rows)
        torch.manual_seed(100 + number)
        net = make_network(self.args.hidden, smooth=15, dropout=0.1)
        model = torch.compile(net)
        optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
        for step in range(self.args.steps):
            start = step * self.args.batch % (len(rows) - self.args.batch + 1)
            pick = rows[start:start + self.args.batch]
            loss = F.huber_loss(model(x[pick]), y[pick], delta=0.1)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            member.losses.append(loss.item())
        self.members.append(member)
        return net.eval()

    @torch.no_grad()
    def fit(self, x, y, test_x):
        for number in range(self.args.members):
            with torch.enable_grad():
                net = self.fit_member(number, x, y)
            self.members[-1].predictions = net(test_x)
            print(f"member {number}: last losses {sum(self.members[-1].losses[-10:]) / 10:.5f}")

    def summary(self, test_y):
        stacked = torch.stack([m.predictions for m in self.members])
        error = (stacked.mean(0) - test_y).abs()
        spread = stacked.std(0)
        inside = (error < 2 * spread + 0.04).float().mean()
        return f"error {error.mean().item():.4f}, spread {spread.mean().item():.4f}, inside {inside.item():.3f}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=1200)
    parser.add_argument("--members", type=int, default=7)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--hidden", type=int, default=24)
    args = parser.parse_args()
    gen = torch.Generator().manual_seed(5)
    x, y = spectra(args.samples, gen)
    test_x, test_y = spectra(300, gen)
    ensemble = Ensemble(args, gen)
    ensemble.fit(x, y, test_x)
    print(ensemble.summary(test_y))


if __name__ == "__main__":
    main()
