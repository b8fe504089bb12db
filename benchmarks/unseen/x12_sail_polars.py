"""Speed polars of sailing yachts from sets of noisy logbook observations (a set encoder, compiled)."""

import argparse
import time
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn

SMALL, LARGE = 16, 32  # observations per set: a day's sail, or a passage
ANGLES = 12


def polar(hull: torch.Tensor, angle: torch.Tensor, wind: torch.Tensor) -> torch.Tensor:
    """Boat speed over true wind angle (radians) and wind speed (units of 10 kn); `hull` (n, 3) shapes the curve."""
    drive = torch.sin(angle.clamp(0.4, 3.0)) ** (1 + hull[:, :1]) * (1 + 0.3 * hull[:, 1:2] * torch.cos(2 * angle))
    return (5 + 2 * hull[:, 2:]) * torch.tanh(1.2 * wind * drive.clamp_min(0.05))


def make_sets(count: int, observations: int, generator: torch.Generator):
    hull = torch.rand(count, 3, generator=generator)
    angle = torch.rand(count, observations, generator=generator) * 2.6 + 0.4
    wind = torch.rand(count, observations, generator=generator) * 1.8 + 0.2
    speed = polar(hull, angle, wind) + 0.3 * torch.randn(count, observations, generator=generator)
    sets = torch.stack([torch.sin(angle), torch.cos(angle), wind, speed / 6], dim=-1)
    grid = torch.linspace(0.6, 2.9, ANGLES).expand(count, -1)
    return sets, polar(hull, grid, torch.ones_like(grid)) / 6


class Pool(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.score = nn.Linear(width, 1)

    def forward(self, x):
        return (x * self.score(x).softmax(dim=1)).sum(1)


class PolarNet(nn.Module):
    def __init__(self, width: int = 48, noise: float = 0.02):
        super().__init__()
        self.noise = noise
        self.inside = nn.Sequential(nn.Linear(4, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.pool = Pool(width)
        self.outside = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, ANGLES))

    def forward(self, sets):
        if self.training and self.noise > 0:
            sets = sets + self.noise * torch.randn_like(sets)
        return self.outside(self.pool(self.inside(sets)))


class Logbook:
    """Alternates between the two sizes at random; every batch has one size, and all are full."""

    def __init__(self, count: int, batch_size: int, seed: int):
        self.generator = torch.Generator().manual_seed(seed)
        self.batch_size = batch_size
        self.parts = [make_sets(count, size, self.generator) for size in (SMALL, LARGE)]

    def __len__(self) -> int:
        return sum(len(sets) // self.batch_size for sets, _ in self.parts)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        plan = []
        for number, (sets, _) in enumerate(self.parts):
            order = torch.randperm(len(sets), generator=self.generator)
            plan += [(number, rows) for rows in order.split(self.batch_size) if len(rows) == self.batch_size]
        for at in torch.randperm(len(plan), generator=self.generator).tolist():
            number, rows = plan[at]
            sets, target = self.parts[number]
            yield sets[rows], target[rows]


class Average:
    """Exponential average of the weights, used for the evaluation."""

    def __init__(self, model: nn.Module, decay: float = 0.99):
        self.decay = decay
        self.values = {name: value.detach().clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        torch._foreach_lerp_(
            list(self.values.values()), [v for v in model.state_dict().values()], 1 - self.decay
        )


@torch.no_grad()
def evaluate(average: Average, generator: torch.Generator) -> float:
    """Eager: one pass over odd-sized sets, which is not worth a compilation."""
    model = PolarNet().eval()
    model.load_state_dict(average.values)
    errors = []
    for observations in (9, 21, 40):
        sets, target = make_sets(64, observations, generator)
        errors.append((model(sets) - target).abs().mean() * 6)
    return torch.stack(errors).mean().item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--accumulate", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(6)

    logbook = Logbook(512, args.batch_size, seed=7)
    model = PolarNet()
    # two sizes for the whole run: a program for each is faster than one for all
    compiled = torch.compile(model, backend="aot_eager", dynamic=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 4e-3, total_steps=args.epochs * len(logbook) // args.accumulate + 1
    )
    average = Average(model)
    total, step, began = torch.zeros(()), 0, time.perf_counter()
    for epoch in range(args.epochs):
        for sets, target in logbook:
            loss = F.mse_loss(compiled(sets), target)
            (loss / args.accumulate).backward()
            total += loss.detach()
            step += 1
            if step % args.accumulate == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
                average.update(model)
            if step % 200 == 0:
                print(f"step {step:4d}  loss {total.item() / 200:.5f}  {time.perf_counter() - began:.1f} s")
                total.zero_()
    print(f"error {evaluate(average, torch.Generator().manual_seed(99)):.3f} kn")


if __name__ == "__main__":
    main()
