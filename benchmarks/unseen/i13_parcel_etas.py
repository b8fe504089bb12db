"""Predicts arrival times from a parcel's scans so far; sequences of any length, one compiled program with a dynamic length."""
import argparse
import math
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

HUBS = 40


def journeys(count, seed):
    """Each journey is a list of hubs with the hours between scans; the target is the time that is left (in days)."""
    rng = random.Random(seed)
    speed = [rng.uniform(0.5, 2.0) for _ in range(HUBS)]
    out = []
    for _ in range(count):
        hubs = [rng.randrange(HUBS) for _ in range(rng.randint(5, 30))]
        hours = [speed[h] * rng.uniform(2, 6) for h in hubs]
        left = rng.uniform(0.5, 1.5) * sum(speed[h] for h in hubs[-3:]) / 3
        out.append((hubs, hours, left))
    return out


def batch_of(rows):
    """Pads to the longest of the rows."""
    longest = max(len(hubs) for hubs, _, _ in rows)
    hubs = torch.full((len(rows), longest), HUBS)
    hours = torch.zeros(len(rows), longest)
    for i, (h, t, _) in enumerate(rows):
        hubs[i, : len(h)] = torch.tensor(h)
        hours[i, : len(t)] = torch.tensor(t)
    left = torch.tensor([y for _, _, y in rows])
    return hubs, hours, left


class EtaNet(nn.Module):
    def __init__(self, width=48, heads=4):
        super().__init__()
        self.hub = nn.Embedding(HUBS + 1, width, padding_idx=HUBS)
        self.hour = nn.Linear(2, width)
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.out = nn.Linear(width, 2)

    def forward(self, hubs, hours):
        there = hubs.ne(HUBS)
        clock = hours.cumsum(1) / 24
        x = self.hub(hubs) + self.hour(torch.stack([hours / 6, clock], -1))
        b, n, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=there[:, None, None, :])
        x = x + self.mix(mixed.transpose(1, 2).reshape(b, n, w))
        x = x + self.mlp(self.norm2(x))
        weight = there.unsqueeze(-1).to(x.dtype)
        return self.out((x * weight).sum(1) / weight.sum(1)).unbind(-1)


def quantile_loss(low, high, left):
    def pinball(prediction, level):
        gap = left - prediction
        return torch.maximum(level * gap, (level - 1) * gap).mean()

    return pinball(low, 0.1) + pinball(high, 0.9)


class Trainer:
    def __init__(self, net, peak, steps):
        self.net = net
        self.model = torch.compile(net)
        self.optimizer = torch.optim.AdamW(net.parameters(), lr=peak)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: min(1.0, (step + 1) / 20) * 0.5 * (1 + math.cos(math.pi * step / steps)))

    def predict(self, hubs, hours):
        torch._dynamo.mark_dynamic(hubs, 1)
        torch._dynamo.mark_dynamic(hours, 1)
        return self.model(hubs, hours)

    def step(self, hubs, hours, left):
        low, high = self.predict(hubs, hours)
        loss = quantile_loss(low, high, left)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        return loss.item()

    @torch.no_grad()
    def coverage(self, batches):
        self.net.eval()
        inside = total = 0
        for hubs, hours, left in batches:
            low, high = self.predict(hubs, hours)
            inside += ((left >= low) & (left <= high)).sum().item()
            total += len(left)
        self.net.train()
        return inside / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--journeys", type=int, default=3200)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(14)
    rng = random.Random(14)
    train, test = journeys(args.journeys, 1), journeys(256, 2)
    test_batches = [batch_of(test[i:i + args.batch]) for i in range(0, len(test), args.batch)]
    per_epoch = args.journeys // args.batch
    trainer = Trainer(EtaNet(), 3e-3, args.epochs * per_epoch)
    for epoch in range(args.epochs):
        rng.shuffle(train)
        begin, total = time.perf_counter(), 0.0
        for i in range(per_epoch):
            total += trainer.step(*batch_of(train[i * args.batch:(i + 1) * args.batch]))
        print(f"epoch {epoch}: loss {total / per_epoch:.4f}, inside {trainer.coverage(test_batches):.3f}, "
              f"{time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    main()
