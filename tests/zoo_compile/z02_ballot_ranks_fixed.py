# Ranked-choice ballots: a Plackett-Luce model with voter covariates, fitted by maximum likelihood.
from dataclasses import dataclass
import random
import time

import torch
from torch import Tensor, nn


@dataclass
class Precinct:
    name: str
    profiles: Tensor      # voters x features
    ballots: Tensor       # voters x slots, -1 where the voter stopped ranking
    slates: Tensor        # parties on the ballot there x candidates x attributes


def simulate(count: int, rng: random.Random) -> list[Precinct]:
    precincts = []
    for i in range(count):
        parties = rng.randint(2, 7)
        slates = torch.stack([torch.randn(4, 8) for _ in range(parties)])
        torch._dynamo.mark_dynamic(slates, 0)
        candidates = 4 * parties
        slots = rng.randint(3, 8)
        voters = 96
        taste = torch.randn(voters, candidates)
        ballots = taste.argsort(1, descending=True)[:, :slots].clone()
        stop = torch.randint(2, slots + 1, (voters, 1))
        ballots[torch.arange(slots)[None] >= stop] = -1
        precincts.append(Precinct(f"ward-{i:03d}", torch.randn(voters, 12), ballots, slates))
    return precincts


class SlateEncoder(nn.Module):
    def __init__(self, attributes: int, width: int):
        super().__init__()
        self.lift = nn.Sequential(nn.Linear(attributes, width), nn.GELU(), nn.Linear(width, width))
        self.party = nn.Linear(width, width)

    def forward(self, slates: Tensor) -> Tensor:
        candidates = self.lift(slates)
        return (candidates + self.party(candidates.mean(1, keepdim=True))).flatten(0, 1)


class BallotModel(nn.Module):
    def __init__(self, features: int = 12, attributes: int = 8, width: int = 32):
        super().__init__()
        self.voter = nn.Sequential(nn.Linear(features, width), nn.GELU(), nn.Linear(width, width))
        self.slate = SlateEncoder(attributes, width)
        self.fatigue = nn.Parameter(torch.zeros(()))
        self.slot_weights: dict[int, Tensor] = {}

    def weights_for(self, slots: int) -> Tensor:
        if slots not in self.slot_weights:
            self.slot_weights[slots] = torch.linspace(0, 1, slots)
        return self.slot_weights[slots]

    def forward(self, profiles: Tensor, slates: Tensor) -> Tensor:
        return self.voter(profiles) @ self.slate(slates).T / 32 ** 0.5

    def slot_discount(self, slots: int) -> Tensor:
        return torch.exp(-self.fatigue.abs() * self.weights_for(slots))


def plackett_luce(utility: Tensor, ballots: Tensor, discount: Tensor) -> Tensor:
    ranked = ballots >= 0
    chosen = utility.gather(1, ballots.clamp(min=0))
    taken = torch.zeros_like(utility).scatter_add(1, ballots.clamp(min=0), ranked.to(utility.dtype))
    outside = utility.masked_fill(taken > 0, float("-inf")).logsumexp(1, keepdim=True)
    tail = chosen.masked_fill(~ranked, float("-inf")).flip(1).logcumsumexp(1).flip(1)
    denominator = torch.logaddexp(tail, outside)
    per_slot = (chosen - denominator) * discount
    count = ranked.sum()
    mean = per_slot.masked_fill(~ranked, 0).sum() / count
    spread = (per_slot - mean).masked_fill(~ranked, 0).square().sum() / (count - 1)
    return -mean + 1e-3 * spread


def fit(model: BallotModel, precincts: list[Precinct], sweeps: int) -> None:
    utilities = torch.compile(model, backend="aot_eager")
    likelihood = torch.compile(plackett_luce, backend="aot_eager", dynamic=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for sweep in range(sweeps):
        began, total = time.perf_counter(), 0.0
        random.Random(sweep).shuffle(precincts)
        for precinct in precincts:
            utility = utilities(precinct.profiles, precinct.slates)
            discount = model.slot_discount(precinct.ballots.shape[1])
            loss = likelihood(utility, precinct.ballots, discount)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"sweep {sweep}: nll {total / len(precincts):.4f} in {time.perf_counter() - began:.1f} s")


@torch.no_grad()
def first_choice_shares(model: BallotModel, precincts: list[Precinct]) -> Tensor:
    shares = []
    for precinct in precincts:
        utility = model(precinct.profiles, precinct.slates)
        shares.append(utility.softmax(1).mean(0).max())
    return torch.stack(shares)


def main() -> None:
    torch.manual_seed(4)
    precincts = simulate(60, random.Random(4))
    model = BallotModel()
    fit(model, precincts, sweeps=14)
    shares = first_choice_shares(model, precincts[:20])
    print(f"leading candidate's share: {shares.mean():.3f} +- {shares.std():.3f}")


if __name__ == "__main__":
    main()
