"""Delay of a ferry's next departures from the history of the day (clean of frills).

Days have between 10 and 40 departures; days of one length class are batched together, so
there are three lengths.  Loss and gradient norm are logged every 50 steps.
"""
import logging
import math
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

logger = logging.getLogger("ferry")

LENGTHS = (12, 24, 40)
FEATURES = 9


def simulate_days(count, length, gen):
    wind = torch.randn(count, 1, generator=gen).cumsum(1).expand(count, length)
    load = torch.rand(count, length, generator=gen)
    clock = torch.linspace(0, 1, length).expand(count, length)
    delay = torch.zeros(count, length)
    for t in range(1, length):
        shock = 0.3 * torch.randn(count, generator=gen)
        delay[:, t] = 0.7 * delay[:, t - 1] + 0.5 * load[:, t - 1] + 0.2 * wind[:, t].abs() + shock - 0.25
    waves = [torch.sin(2 * math.pi * k * clock) for k in (1, 2, 3)]
    noise = torch.randn(count, length, 2, generator=gen)
    x = torch.cat([torch.stack([delay, wind, load, clock, *waves], -1), noise], -1)
    return x[:, :-1].contiguous(), delay[:, 1:].contiguous()


class Buckets:
    def __init__(self, per_length, batch, seed):
        gen = torch.Generator().manual_seed(seed)
        self.days = {n: simulate_days(per_length, n, gen) for n in LENGTHS}
        self.batch = batch
        self.random = random.Random(seed)

    def __iter__(self):
        plan = []
        for n, (x, _) in self.days.items():
            order = torch.randperm(len(x))
            plan += [(n, idx) for idx in order.split(self.batch) if len(idx) == self.batch]
        self.random.shuffle(plan)
        for n, idx in plan:
            x, y = self.days[n]
            yield x[idx], y[idx]


class GatedLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.conv = nn.Conv1d(width, 2 * width, 4)
        self.out = nn.Linear(width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        h = F.pad(self.norm(x).transpose(1, 2), (3, 0))
        a, b = self.conv(h).chunk(2, 1)
        return x + self.drop(self.out((a * torch.sigmoid(b)).transpose(1, 2)))


class DelayModel(nn.Module):
    def __init__(self, width=64, depth=3):
        super().__init__()
        self.inp = nn.Linear(FEATURES, width)
        self.layers = nn.ModuleList(GatedLayer(width) for _ in range(depth))
        self.mean = nn.Linear(width, 1)
        self.scale = nn.Linear(width, 1)

    def forward(self, x):
        h = self.inp(x)
        for layer in self.layers:
            h = layer(h)
        return self.mean(h).squeeze(-1), F.softplus(self.scale(h)).squeeze(-1) + 1e-3


def nll(mean, scale, y):
    return (torch.log(scale) + (y - mean).abs() / scale).mean()


@torch.no_grad()
def evaluate(model, data):
    model.eval()
    total, batches = torch.zeros(()), 0
    for x, y in data:
        mean, _ = model(x)
        total += (mean - y).abs().mean()
        batches += 1
    model.train()
    return total.item() / batches


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(3)
    train, test = Buckets(1600, 16, 0), Buckets(160, 16, 1)
    model = DelayModel()
    compiled = torch.compile(model, backend="aot_eager", dynamic=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=3 * 300)
    step, micro, began = 0, 2, time.time()
    for epoch in range(4):
        for k, (x, y) in enumerate(train):
            loss = nll(*compiled(x), y) / micro
            loss.backward()
            logger.debug("micro-batch %d loss %s", k, loss)
            if (k + 1) % micro:
                continue
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            if step % 50 == 0:
                logger.info("step %d loss %.4f gradient %.3f", step, micro * loss.item(), norm.item())
        logger.info("epoch %d: error %.4f after %.1f s", epoch, evaluate(compiled, test), time.time() - began)


if __name__ == "__main__":
    main()
