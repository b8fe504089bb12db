"""Detects neural spikes in short recordings as a set of (time, height) with a matching loss; the training objective is compiled."""
import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F


def recordings(count, length, most, seed):
    """Noise with one to `most` spikes of random height; targets are padded with height 0."""
    gen = torch.Generator().manual_seed(seed)
    number = torch.randint(1, most + 1, (count,), generator=gen)
    when = torch.rand(count, most, generator=gen) * 0.9 + 0.05
    height = 0.5 + torch.rand(count, most, generator=gen)
    height = height * (torch.arange(most) < number.unsqueeze(1))
    t = torch.linspace(0, 1, length)
    shape = torch.exp(-((t - when.unsqueeze(-1)) / 0.012) ** 2)
    signal = (shape * height.unsqueeze(-1)).sum(1) + 0.08 * torch.randn(count, length, generator=gen)
    return signal.unsqueeze(1), torch.stack([when, height], -1)


class SpikeNet(nn.Module):
    def __init__(self, slots, width=24):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv1d(1, width, 7, stride=2, padding=3), nn.GELU(), nn.Conv1d(width, width, 5, stride=2, padding=2), nn.GELU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2), nn.GELU())
        self.queries = nn.Parameter(torch.randn(slots, width) * 0.5)
        self.place = nn.Parameter(torch.randn(1, 16, width) * 0.1)
        self.mix = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.box = nn.Linear(width, 2)

    def forward(self, signal):
        memory = self.trunk(signal).transpose(1, 2) + self.place
        attention = (self.queries @ memory.transpose(1, 2) / memory.shape[-1] ** 0.5).softmax(-1)
        slots = attention @ memory + self.queries
        when, height = self.box(slots + self.mix(slots)).unbind(-1)
        return torch.stack([when.sigmoid(), F.softplus(height)], -1)


def pair_up(cost):
    """Greedy assignment of slots to spikes, cheapest pair first; returns the slot of each spike."""
    slots, spikes = len(cost), len(cost[0])
    order = sorted((cost[s][k], s, k) for s in range(slots) for k in range(spikes))
    slot_of, used = [0] * spikes, set()
    taken = set()
    for _, s, k in order:
        if s in used or k in taken:
            continue
        slot_of[k] = s
        used.add(s)
        taken.add(k)
    return slot_of


class SetLoss(nn.Module):
    def __init__(self, time_weight=5.0, height_weight=1.0):
        super().__init__()
        self.register_buffer("weights", torch.tensor([time_weight, height_weight]))

    def assign(self, predicted, target):
        gap = (predicted.detach().unsqueeze(2) - target.unsqueeze(1)).abs() * self.weights
        return torch.tensor([pair_up(c) for c in gap.sum(-1).tolist()])

    def forward(self, predicted, target):
        slot_of = self.assign(predicted, target)
        chosen = predicted.gather(1, slot_of.unsqueeze(-1).expand(-1, -1, 2))
        there = target[..., 1:].gt(0).float()
        gap = (chosen - target).abs() * self.weights
        missed = gap[..., 1:] * (1 - there)
        return ((gap * there).sum((1, 2)) + 0.3 * missed.sum((1, 2))).mean()


class Objective(nn.Module):
    def __init__(self, net, loss):
        super().__init__()
        self.net, self.loss = net, loss

    def forward(self, signal, target):
        return self.loss(self.net(signal), target)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--recordings", type=int, default=1024)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--most", type=int, default=4)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=240)
    args = parser.parse_args()
    torch.manual_seed(10)
    rng = random.Random(10)
    signals, targets = recordings(args.recordings, args.length, args.most, 1)
    net = SpikeNet(slots=args.most + 2)
    objective = torch.compile(Objective(net, SetLoss()), backend="aot_eager")
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    losses = []
    for step in range(1, args.steps + 1):
        pick = rng.sample(range(args.recordings), args.batch)
        loss = objective(signals[pick], targets[pick])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if step % 60 == 0:
            print(f"step {step}: loss {sum(losses[-60:]) / 60:.4f}")


if __name__ == "__main__":
    main()
