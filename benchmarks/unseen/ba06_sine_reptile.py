import torch_xla
import torch_xla.core.xla_model as xm

import math
import random
from collections import OrderedDict

import torch
from torch.func import functional_call
import torch.nn as nn
import torch.nn.functional as F

OPTIONS = dict(meta_steps=240, tasks=1, shots=10, inner_lr=0.02, outer_lr=0.3, inner_min=2, inner_max=9,
               deepen_every=30, report_every=60, probe_steps=5)


class SineTask:
    def __init__(self, rng):
        self.amplitude = rng.uniform(0.5, 3.0)
        self.phase = rng.uniform(0, math.pi)

    def sample(self, n, device):
        x = 10 * torch.rand(n, 1) - 5
        y = self.amplitude * torch.sin(x + self.phase)
        return x.to(device), y.to(device)


class Regressor(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(),
                                 nn.Linear(hidden, 1))

    def forward(self, x):
        return self.net(x)


class DepthPlan:
    def __init__(self, low, high, every):
        self.low, self.high, self.every = low, high, every

    def at(self, step):
        return min(self.high, self.low + step // self.every)


class Reptile:
    def __init__(self, model, device, options):
        self.model, self.device, self.o = model, device, options
        self.rng = random.Random(12)
        self.plan = DepthPlan(options["inner_min"], options["inner_max"], options["deepen_every"])

    def loss(self, weights, x, y):
        return F.mse_loss(functional_call(self.model, weights, (x,)), y)

    def start(self):
        return OrderedDict((k, p.detach().clone().requires_grad_()) for k, p in self.model.named_parameters())

    def adapt(self, task, steps):
        weights = self.start()
        for _ in range(steps):
            x, y = task.sample(self.o["shots"], self.device)
            grads = torch.autograd.grad(self.loss(weights, x, y), list(weights.values()))
            weights = OrderedDict((k, (w - self.o["inner_lr"] * g).detach().requires_grad_())
                                  for (k, w), g in zip(weights.items(), grads))
        return weights

    @torch.no_grad()
    def absorb(self, adapted, rate):
        for name, p in self.model.named_parameters():
            target = torch.stack([w[name].detach() for w in adapted]).mean(0)
            p.add_((target - p) * rate)

    def meta_step(self, step):
        steps = self.plan.at(step)
        adapted = [self.adapt(SineTask(self.rng), steps) for _ in range(self.o["tasks"])]
        self.absorb(adapted, self.o["outer_lr"] * (1 - step / self.o["meta_steps"]))
        xm.mark_step()

    def probe(self, tasks=4):
        rng = random.Random(77)
        losses = []
        for _ in range(tasks):
            task = SineTask(rng)
            weights = self.adapt(task, self.o["probe_steps"])
            x, y = task.sample(50, self.device)
            with torch.no_grad():
                losses.append(self.loss(weights, x, y))
            xm.mark_step()
        return torch.stack(losses).mean().item()


def main():
    torch.manual_seed(0)
    device = torch.device("xla")
    learner = Reptile(Regressor().to(device), device, OPTIONS)
    for step in range(OPTIONS["meta_steps"]):
        learner.meta_step(step)
        if (step + 1) % OPTIONS["report_every"] == 0:
            print(f"meta step {step + 1} depth {learner.plan.at(step)} probe loss {learner.probe():.4f}")


if __name__ == "__main__":
    main()
