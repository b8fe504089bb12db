"""Reptile meta-learning of sine waves."""
import copy
import math

import torch
import torch.nn as nn


class SineTask:
    def __init__(self, g):
        self.amp = 0.5 + 4 * torch.rand(1, generator=g)
        self.phase = math.pi * torch.rand(1, generator=g)
        self.g = g

    def points(self, n):
        x = (torch.rand(n, 1, generator=self.g) - 0.5) * 10
        return x, self.amp * torch.sin(x + self.phase)


class Features(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.w = nn.Parameter(torch.randn(1, width) * 0.7)
        self.b = nn.Parameter(torch.rand(width) * 2 * math.pi)

    def forward(self, x):
        return torch.sin(x @ self.w + self.b)


def build(width=64):
    return nn.Sequential(Features(width), nn.Linear(width, width), nn.SiLU(),
                         nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))


class Learner:
    """Fits a copy of the initialisation to one task."""

    def __init__(self, inner_lr=0.02, inner_steps=16, shots=32, backend="aot_eager"):
        self.inner_lr, self.inner_steps, self.shots = inner_lr, inner_steps, shots
        self.backend = backend

    def objective(self, net):
        def value(x, y):
            return nn.functional.mse_loss(net(x), y)
        return torch.compile(value, backend=self.backend)

    def fresh(self, init):
        torch.compiler.reset()
        return copy.deepcopy(init)

    def adapt(self, init, task):
        net = self.fresh(init)
        value = self.objective(net)
        opt = torch.optim.SGD(net.parameters(), lr=self.inner_lr)
        for _ in range(self.inner_steps):
            x, y = task.points(self.shots)
            loss = value(x, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        return net, loss.detach()


class Reptile:
    def __init__(self, init, learner, outer_lr=0.5):
        self.init, self.learner, self.outer_lr = init, learner, outer_lr

    def outer_step(self, tasks, scale):
        deltas = [torch.zeros_like(p) for p in self.init.parameters()]
        total = torch.zeros(())
        for task in tasks:
            fitted, loss = self.learner.adapt(self.init, task)
            total += loss
            for d, p, q in zip(deltas, fitted.parameters(), self.init.parameters()):
                d += (p.detach() - q.detach()) / len(tasks)
        with torch.no_grad():
            for d, q in zip(deltas, self.init.parameters()):
                q.add_(d, alpha=self.outer_lr * scale)
        return total / len(tasks)


def few_shot(reptile, g, tasks=4):
    err = 0.0
    for _ in range(tasks):
        task = SineTask(g)
        net, _ = reptile.learner.adapt(reptile.init, task)
        with torch.no_grad():
            x, y = task.points(100)
            err += (net(x) - y).pow(2).mean().item()
    return err / tasks


def main():
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(0)
    reptile = Reptile(build(), Learner())
    iterations, per_step = 8, 3
    for it in range(iterations):
        tasks = [SineTask(g) for _ in range(per_step)]
        loss = reptile.outer_step(tasks, 1 - it / iterations)
        if it % 4 == 0:
            print(f"outer {it} adapted loss {loss.item():.3f}", flush=True)
    print("few-shot error", round(few_shot(reptile, g), 3))


if __name__ == "__main__":
    main()
