"""Surrogate of a rotary kiln: predicts outlet composition from settings; forward and optimizer step are both compiled."""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

INPUTS, OUTPUTS = 14, 6


def kiln_runs(count, gen):
    """Settings (scaled) and what comes out: smooth, with an interaction of feed, flame and speed."""
    x = torch.rand(count, INPUTS, generator=gen) * 2 - 1
    mix = torch.linspace(-1, 1, INPUTS * OUTPUTS).view(INPUTS, OUTPUTS)
    y = torch.tanh(x @ mix) + 0.5 * torch.sin(3 * x[:, :OUTPUTS] * x[:, 1:OUTPUTS + 1])
    return x, y + 0.02 * torch.randn(count, OUTPUTS, generator=gen)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.a, self.b = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.b(F.silu(self.a(self.norm(x))))


class KilnNet(nn.Module):
    def __init__(self, width=64, depth=2):
        super().__init__()
        self.inlet = nn.Linear(INPUTS, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.outlet = nn.Linear(width, OUTPUTS)

    def forward(self, x):
        h = self.inlet(x)
        for block in self.blocks:
            h = block(h)
        return self.outlet(h)


class WarmupCosine:
    """Learning rate by step, set in the optimizer's groups."""

    def __init__(self, optimizer, peak, warmup, total):
        self.optimizer, self.peak, self.warmup, self.total = optimizer, peak, warmup, total

    def rate(self, step):
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        return 0.5 * self.peak * (1 + math.cos(math.pi * (step - self.warmup) / (self.total - self.warmup)))

    def set(self, step):
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(step)


class Fit:
    def __init__(self, net, args):
        self.net, self.args = net, args
        self.optimizer = torch.optim.AdamW(net.parameters(), lr=args.lr, weight_decay=1e-3)
        self.schedule = WarmupCosine(self.optimizer, args.lr, args.steps // 10, args.steps)
        self.objective = torch.compile(self.loss)
        self.update = torch.compile(self.optimizer_step, backend="aot_eager")

    def loss(self, x, y):
        return F.smooth_l1_loss(self.net(x), y, beta=0.1)

    def optimizer_step(self):
        self.optimizer.step()

    def step(self, number, x, y):
        self.schedule.set(number)
        loss = self.objective(x, y)
        loss.backward()
        self.update()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=8192)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--lr", type=float, default=4e-3)
    args = parser.parse_args()
    torch.manual_seed(8)
    gen = torch.Generator().manual_seed(8)
    x, y = kiln_runs(args.runs, gen)
    test_x, test_y = kiln_runs(1024, gen)
    net = KilnNet()
    fit = Fit(net, args)
    window = []
    for number in range(args.steps):
        pick = torch.randint(0, args.runs, (args.batch,), generator=gen)
        window.append(fit.step(number, x[pick], y[pick]))
        if len(window) == 100:
            print(f"step {number + 1}: loss {sum(window) / 100:.4f}, lr {fit.optimizer.param_groups[0]['lr']:.1e}")
            window.clear()
    net.eval()
    with torch.no_grad():
        error = (net(test_x) - test_y).abs().mean(0)
    print("test error by component:", [round(e, 3) for e in error.tolist()])


if __name__ == "__main__":
    main()
