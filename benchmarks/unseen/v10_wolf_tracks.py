"""Smooth GPS collar tracks of wolves with a differentiable particle-free filter and learn each pack's movement model."""
import argparse
import random
import time
from typing import NamedTuple

import torch
from torch import nn

PACKS = ("alder", "basalt", "cinder")
FIXES = 12  # one per hour, from dusk on


class Track(NamedTuple):
    pack: str
    fixes: torch.Tensor  # batch, FIXES, 2
    night: torch.Tensor  # FIXES


def simulate_pack(pack, animals, generator):
    """Correlated random walk with a den that pulls back; packs differ in pace and tie to the den."""
    k = PACKS.index(pack)
    pace, tie = 0.3 + 0.1 * k, 0.02 + 0.015 * k
    hours = torch.arange(FIXES)
    night = ((hours < 8) & (hours > 1)).float()
    position, velocity = torch.zeros(animals, 2), torch.zeros(animals, 2)
    path = []
    for hour in range(FIXES):
        kick = torch.randn(animals, 2, generator=generator)
        velocity = 0.7 * velocity - tie * position + pace * (0.4 + 0.6 * night[hour]) * kick
        position = position + velocity
        path.append(position + 0.05 * torch.randn(animals, 2, generator=generator))
    return Track(pack, torch.stack(path, 1), night)


class MovementFilter(nn.Module):
    """A learned Kalman-like filter: predict, compare with the fix, correct. Returns the mean negative log likelihood."""

    def __init__(self, hidden=32):
        super().__init__()
        self.packs = nn.ParameterDict({pack: nn.Parameter(torch.tensor([0.5, 0.0, -1.0])) for pack in PACKS})
        self.dynamics = nn.Sequential(nn.Linear(5, hidden), nn.Tanh(), nn.Linear(hidden, 4))
        self.gain = nn.Sequential(nn.Linear(6, hidden), nn.Tanh(), nn.Linear(hidden, 4))

    def advance(self, state, night, traits):
        persistence, tie, _ = traits.unbind()
        position, velocity = state.split(2, -1)
        push = self.dynamics(torch.cat([state, night.expand(len(state), 1)], -1))
        velocity = torch.sigmoid(persistence) * velocity - 0.1 * tie * position + 0.1 * push[:, :2]
        return torch.cat([position + velocity, velocity], -1), push[:, 2:]

    def correct(self, state, fix):
        surprise = fix - state[:, :2]
        weight = torch.sigmoid(self.gain(torch.cat([state, surprise], -1)))
        return state + weight * surprise.repeat(1, 2), surprise

    def forward(self, pack, fixes, night):
        traits = self.packs[pack]
        state = torch.cat([fixes[:, 0], torch.zeros_like(fixes[:, 0])], -1)
        cost = fixes.new_zeros(())
        for hour in range(1, fixes.shape[1]):
            state, log_scale = self.advance(state, night[hour], traits)
            state, surprise = self.correct(state, fixes[:, hour])
            log_scale = (log_scale + traits[2]).clamp(-4, 3)
            cost = cost + (0.5 * (surprise / log_scale.exp()) ** 2 + log_scale).sum(-1).mean()
        return cost / (fixes.shape[1] - 1)


class Study:
    def __init__(self, animals, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.tracks = [simulate_pack(pack, animals, self.generator) for pack in PACKS]
        self.order = random.Random(seed)

    def batches(self, size, rounds):
        for _ in range(rounds):
            track = self.order.choice(self.tracks)
            pick = torch.randint(0, len(track.fixes), (size,), generator=self.generator)
            yield track._replace(fixes=track.fixes[pick])


def train(model, study, rounds, size, lr):
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    recent, began = [], time.perf_counter()
    for number, batch in enumerate(study.batches(size, rounds), 1):
        loss = model(batch.pack, batch.fixes, batch.night)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recent.append(loss.item())
        if number % 60 == 0:
            print(f"{number:5d} nll {sum(recent) / len(recent):.3f}  {time.perf_counter() - began:.1f} s")
            recent.clear()


def describe(model):
    for pack in PACKS:
        persistence, tie, scale = model.packs[pack].detach().tolist()
        print(f"  {pack:10s} persistence {persistence:+.2f} den {tie:+.2f} scale {scale:+.2f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=240)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--backend", default="aot_eager")
    args = parser.parse_args()
    torch.manual_seed(4)
    model = MovementFilter()
    compiled = torch.compile(model, backend=args.backend)
    train(compiled, Study(200, seed=8), args.rounds, args.batch, args.lr)
    describe(model)


if __name__ == "__main__":
    main()
