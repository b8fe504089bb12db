"""Few-shot tide prediction: a meta-learned initialisation adapts to a new harbour from a handful of gauge readings."""
import math
import time
from typing import NamedTuple

import numpy as np
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm
from torch.func import functional_call, grad_and_value, vmap

CONSTITUENTS = {"M2": 12.42, "S2": 12.0, "K1": 23.93, "O1": 25.82}


class Episode(NamedTuple):
    support_t: torch.Tensor
    support_h: torch.Tensor
    query_t: torch.Tensor
    query_h: torch.Tensor


class Harbours:
    """Each harbour has its own amplitudes and phases; an episode is a set of readings within one week."""

    def __init__(self, n, seed):
        g = np.random.default_rng(seed)
        scale = np.array([1.0, 0.4, 0.3, 0.2])
        self.amp = scale * g.uniform(0.5, 1.5, (n, 4))
        self.phase = g.uniform(0, 0.4 * math.pi, (n, 4))
        self.speed = 2 * math.pi / np.array(list(CONSTITUENTS.values()))
        self.rng = g

    def height(self, rows, hours):
        arg = hours[:, :, None] * self.speed + self.phase[rows][:, None]
        return (self.amp[rows][:, None] * np.cos(arg)).sum(-1)

    def episodes(self, tasks, shots, queries):
        rows = self.rng.integers(0, len(self.amp), tasks)
        hours = self.rng.uniform(0, 168, (tasks, shots + queries))
        heights = self.height(rows, hours) + 0.02 * self.rng.normal(size=hours.shape)
        t, h = (torch.from_numpy(a.astype(np.float32))[..., None] for a in (hours, heights))
        return Episode(t[:, :shots], h[:, :shots], t[:, shots:], h[:, shots:])


class TideNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.register_buffer("speed", torch.tensor([2 * math.pi / p for p in CONSTITUENTS.values()]))
        self.net = nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, t):
        arg = t * self.speed
        return self.net(torch.cat([arg.cos(), arg.sin()], -1))


class MetaLearner:
    def __init__(self, net, inner_steps=3, outer_lr=2e-3):
        self.net = net
        self.names = [n for n, _ in net.named_parameters()]
        self.buffers = dict(net.named_buffers())
        self.inner_steps = inner_steps
        self.log_rates = nn.ParameterDict(
            {n.replace(".", "_"): nn.Parameter(torch.full((), -3.0, device=p.device)) for n, p in net.named_parameters()})
        self.opt = torch.optim.Adam([*net.parameters(), *self.log_rates.parameters()], lr=outer_lr)

    def loss(self, params, t, h):
        return ((functional_call(self.net, {**params, **self.buffers}, (t,)) - h) ** 2).mean()

    def adapt(self, params, t, h, steps):
        for _ in range(steps):
            grads, _ = grad_and_value(self.loss)(params, t, h)
            params = {n: p - self.log_rates[n.replace(".", "_")].exp() * grads[n] for n, p in params.items()}
        return params

    def task_loss(self, params, episode, steps):
        fast = self.adapt(params, episode.support_t, episode.support_h, steps)
        return self.loss(fast, episode.query_t, episode.query_h)

    def meta_loss(self, episodes, steps):
        params = dict(self.net.named_parameters())
        return vmap(lambda *e: self.task_loss(params, Episode(*e), steps))(*episodes)

    def outer_step(self, episodes, smooth):
        losses = self.meta_loss(episodes, self.inner_steps)
        self.opt.zero_grad()
        losses.mean().backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 5.0)
        self.opt.step()
        smooth.mul_(0.95).add_(losses.detach().mean(), alpha=0.05)
        xm.mark_step()

    def adaptation_curve(self, episodes, steps):
        """Query error after 0, 1, ... steps on harbours that training has not seen."""
        params = dict(self.net.named_parameters())

        def curve(*e):
            e, fast, out = Episode(*e), params, []
            for k in range(steps + 1):
                out.append(self.loss(fast, e.query_t, e.query_h))
                if k < steps:
                    fast = self.adapt(fast, e.support_t, e.support_h, 1)
            return torch.stack(out)

        with torch.no_grad():
            mean = vmap(curve)(*episodes).mean(0)
        return [round(v, 3) for v in mean.cpu().tolist()]


def send(episode, device):
    return Episode(*(x.to(device) for x in episode))


def main(iterations=200, tasks=16, shots=10, queries=20):
    torch.manual_seed(8)
    device = torch_xla.device()
    train, unseen = Harbours(200, 0), Harbours(40, 1)
    net = TideNet().to(device)
    learner = MetaLearner(net)
    probe = send(unseen.episodes(32, shots, 40), device)
    smooth = torch.zeros((), device=device)
    xm.mark_step()
    began = time.time()
    for it in range(1, iterations + 1):
        learner.outer_step(send(train.episodes(tasks, shots, queries), device), smooth)
        if it % 50 == 0:
            print(f"{it:4d} query loss {smooth.item():.4f}")
        if it % 100 == 0:
            print(f"     unseen {learner.adaptation_curve(probe, 5)}  {time.time() - began:.1f}s")


if __name__ == "__main__":
    main()
