"""Random-subspace ensemble for pollen counts from spectral flow-cytometry channels, with k-fold validation."""
import random
import statistics

import torch
from torch import nn

CHANNELS, SPECIES, MEMBERS, FOLDS = 40, 8, 6, 3


def cytometer(n):
    species = torch.randint(SPECIES, (n,))
    signature = torch.rand(SPECIES, CHANNELS) * 3
    gain = 1 + 0.2 * torch.randn(n, 1)
    return torch.poisson((signature[species] * gain).clamp(min=0) * 4) / 4, species


class Member(nn.Module):
    """A small network that sees only some of the channels."""

    def __init__(self, channels, width=64):
        super().__init__()
        self.register_buffer("channels", torch.tensor(channels))
        self.norm = nn.BatchNorm1d(len(channels))
        self.first = nn.Linear(len(channels), width)
        self.second = nn.Linear(width, width)
        self.out = nn.Linear(width, SPECIES)

    def forward(self, x):
        x = self.norm(torch.log1p(x[:, self.channels]))
        x = torch.relu(self.first(x))
        x = x + torch.relu(self.second(x))
        return self.out(x)


class Forest:
    def __init__(self, rng):
        self.members = [Member(rng.sample(range(CHANNELS), 16)) for _ in range(MEMBERS)]
        self.calls = [torch.compile(m, backend="aot_eager") for m in self.members]

    def fit(self, x, y, epochs, batch=64):
        for call, member in zip(self.calls, self.members):
            member.train()
            optimizer = torch.optim.Adam(member.parameters(), lr=3e-3)
            bag = torch.randint(len(x), (len(x),))
            for _ in range(epochs):
                order = bag[torch.randperm(len(bag))]
                for i in range(0, len(order) - batch + 1, batch):
                    rows = order[i:i + batch]
                    loss = nn.functional.cross_entropy(call(x[rows]), y[rows])
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()

    @torch.no_grad()
    def predict(self, x):
        votes = 0
        for member in self.members:
            member.eval()
            votes = votes + member(x).softmax(1)
        return votes / MEMBERS


def split(n, fold):
    index = torch.arange(n)
    held = index % FOLDS == fold
    return index[~held], index[held]


def calibration_error(probability, y, bins=10):
    confidence, guess = probability.max(1)
    bucket = (confidence * bins).long().clamp(max=bins - 1)
    error = 0.0
    for b in range(bins):
        inside = bucket == b
        if inside.any():
            error += inside.float().mean() * (confidence[inside].mean() - (guess == y)[inside].float().mean()).abs()
    return float(error)


def main():
    torch.manual_seed(5)
    rng = random.Random(5)
    x, y = cytometer(1800)
    scores = []
    for fold in range(FOLDS):
        train, held = split(len(x), fold)
        forest = Forest(rng)
        forest.fit(x[train], y[train], epochs=6)
        p = forest.predict(x[held])
        accuracy = (p.argmax(1) == y[held]).float().mean().item()
        scores.append(accuracy)
        print(f"fold {fold}: accuracy {accuracy:.3f}, calibration error {calibration_error(p, y[held]):.3f}")
    print(f"mean {statistics.mean(scores):.3f} +- {statistics.stdev(scores):.3f}")


if __name__ == "__main__":
    main()
