"""Forecasts river levels from several gauges; windows are smoothed over different spans as augmentation."""
import math
import random
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass(frozen=True)
class Plan:
    gauges: int = 5
    hours: int = 3000
    context: int = 96
    ahead: int = 12
    batch: int = 32
    steps: int = 160
    lr: float = 2e-3
    longest_span: int = 13
    width: int = 32


def river_levels(plan, gen):
    """Rain pulses that travel down the river from gauge to gauge, and a daily tide at the last ones."""
    rain = (torch.rand(plan.hours, generator=gen) < 0.02).float() * torch.rand(plan.hours, generator=gen) * 3
    decay = torch.exp(-torch.arange(48.0) / 12)
    pulse = F.conv1d(F.pad(rain.view(1, 1, -1), (47, 0)), decay.flip(0).view(1, 1, -1)).view(-1)
    hours = torch.arange(plan.hours)
    rows = []
    for gauge in range(plan.gauges):
        tide = 0.05 * gauge * torch.sin(2 * math.pi * hours / 24.8)
        rows.append(torch.roll(pulse, 5 * gauge) * (1 - 0.1 * gauge) + tide)
    return torch.stack(rows, 1) + 0.05 * torch.randn(plan.hours, plan.gauges, generator=gen)


class Windows(torch.utils.data.Dataset):
    """Context, target and the hour of the day and of the week of each context hour."""

    def __init__(self, levels, plan):
        self.rows, self.plan = levels.tolist(), plan

    def __len__(self):
        return len(self.rows) - self.plan.context - self.plan.ahead

    def calendar(self, hour):
        day, week = 2 * math.pi * (hour % 24) / 24, 2 * math.pi * (hour % 168) / 168
        return [math.sin(day), math.cos(day), math.sin(week), math.cos(week)]

    def __getitem__(self, start):
        stop = start + self.plan.context
        context = []
        for hour in range(start, stop):
            row = self.rows[hour]
            trend = [row[g] - self.rows[max(0, hour - 6)][g] for g in range(self.plan.gauges)]
            rank = sorted(range(self.plan.gauges), key=lambda g: row[g])
            context.append(row + trend + [rank.index(g) / self.plan.gauges for g in range(self.plan.gauges)] + self.calendar(hour))
        target = [self.rows[hour][-1] for hour in range(stop, stop + self.plan.ahead)]
        return torch.tensor(context), torch.tensor(target)


class Forecaster(nn.Module):
    def __init__(self, plan):
        super().__init__()
        channels = 3 * plan.gauges + 4
        self.mix = nn.Conv1d(channels, plan.width, 1)
        self.convs = nn.ModuleList(nn.Conv1d(plan.width, plan.width, 3, padding=d, dilation=d) for d in (1, 4))
        self.out = nn.Linear(2 * plan.width, plan.ahead)

    def forward(self, context, span):
        x = context.transpose(1, 2)
        if span > 1:
            x = F.avg_pool1d(x, span, stride=1, padding=span // 2, count_include_pad=False)
        h = self.mix(x)
        for conv in self.convs:
            h = h + F.gelu(conv(h))
        return self.out(torch.cat([h[..., -1], h.mean(-1)], 1))


def main(plan=Plan()):
    torch.manual_seed(13)
    rng = random.Random(13)
    gen = torch.Generator().manual_seed(13)
    levels = river_levels(plan, gen)
    data = Windows(levels, plan)
    sampler = torch.utils.data.RandomSampler(data, num_samples=plan.batch * plan.steps, generator=gen)
    loader = torch.utils.data.DataLoader(data, plan.batch, sampler=sampler, drop_last=True)
    net = Forecaster(plan)
    model = torch.compile(net, backend="aot_eager")
    optimizer = torch.optim.AdamW(net.parameters(), lr=plan.lr)
    total = torch.zeros(())
    for step, (context, target) in enumerate(loader, 1):
        span = rng.randrange(1, plan.longest_span + 1, 2)
        loss = F.l1_loss(model(context, span), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        total += loss.detach()
        if step % 40 == 0:
            print(f"step {step}: mean error {total.item() / 40:.3f}")
            total.zero_()


if __name__ == "__main__":
    main()
