import copy
import math
import time

import torch_xla
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla.core.xla_model as xm

LENGTH, NOISE, BATCH = 48, 12, 32


class Heartbeats(torch.utils.data.IterableDataset):
    """Synthetic one-lead beats: three bumps of random place and height."""

    def __init__(self, seed):
        self.seed = seed

    def __iter__(self):
        gen = torch.Generator().manual_seed(self.seed)
        grid = torch.linspace(0, 1, LENGTH)
        while True:
            centre = torch.tensor([0.25, 0.5, 0.75]) + 0.03 * torch.randn(3, generator=gen)
            height = torch.tensor([0.2, 1.0, 0.3]) * (1 + 0.1 * torch.randn(3, generator=gen))
            width = torch.tensor([0.05, 0.02, 0.06])
            bumps = height[:, None] * torch.exp(-((grid - centre[:, None]) / width[:, None]) ** 2 / 2)
            yield bumps.sum(0) + 0.01 * torch.randn(LENGTH, generator=gen)


def mlp(sizes, act):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1])


class HeartbeatGAN:
    def __init__(self, device, r1_every=8, r1_weight=2.0, ema=0.98):
        self.device, self.r1_every, self.r1_weight, self.decay = device, r1_every, r1_weight, ema
        self.gen = mlp([NOISE, 64, 64, LENGTH], nn.ReLU).to(device)
        self.dis = mlp([LENGTH, 64, 64, 1], nn.Softplus).to(device)
        self.avg = copy.deepcopy(self.gen).requires_grad_(False)
        self.opt_g = torch.optim.Adam(self.gen.parameters(), lr=1e-3, betas=(0.5, 0.99))
        self.opt_d = torch.optim.Adam(self.dis.parameters(), lr=2e-3, betas=(0.5, 0.99))
        ramp = lambda s: min(1.0, (s + 1) / 40) * (1 - s / 2000)
        self.scheds = [torch.optim.lr_scheduler.LambdaLR(o, ramp) for o in (self.opt_g, self.opt_d)]

    def noise(self, n):
        return torch.randn(n, NOISE).to(self.device)

    def critic_step(self, real, regularise):
        fake = self.gen(self.noise(len(real))).detach()
        if regularise:
            real = real.requires_grad_(True)
        score = self.dis(real)
        loss = F.softplus(-score).mean() + F.softplus(self.dis(fake)).mean()
        if regularise:
            slope, = torch.autograd.grad(score.sum(), real, create_graph=True)
            loss = loss + self.r1_weight * self.r1_every / 2 * slope.square().sum(1).mean()
        self.opt_d.zero_grad()
        loss.backward()
        self.opt_d.step()
        return loss.detach()

    def generator_step(self, n):
        loss = F.softplus(-self.dis(self.gen(self.noise(n)))).mean()
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()
        with torch.no_grad():
            for a, p in zip(self.avg.parameters(), self.gen.parameters()):
                a.lerp_(p, 1 - self.decay)
        return loss.detach()

    def step(self, real, index):
        d = self.critic_step(real.to(self.device), index % self.r1_every == 0)
        g = self.generator_step(len(real))
        for s in self.scheds:
            s.step()
        xm.mark_step()
        return d, g

    @torch.no_grad()
    def quality(self, reference):
        beats = self.avg(self.noise(128)).cpu()
        drift = (beats.mean(0) - reference.mean(0)).norm() + (beats.std(0) - reference.std(0)).norm()
        return drift.item(), beats


def main(steps=1600, log_every=100, eval_every=400):
    torch.manual_seed(0)
    device = torch.device("xla")
    loader = iter(torch.utils.data.DataLoader(Heartbeats(0), batch_size=BATCH))
    reference = torch.stack([b for b, _ in zip(Heartbeats(99), range(128))])
    gan = HeartbeatGAN(device)
    sum_d = torch.zeros((), device=device)
    sum_g = torch.zeros((), device=device)
    began = time.time()
    for index in range(1, steps + 1):
        d, g = gan.step(next(loader), index)
        sum_d += d
        sum_g += g
        if index % log_every == 0:
            xm.mark_step()
            print(f"{index:5d} critic {sum_d.item() / log_every:.3f} generator {sum_g.item() / log_every:.3f} "
                  f"lr {gan.scheds[0].get_last_lr()[0]:.2e} {time.time() - began:.1f}s", flush=True)
            sum_d.zero_()
            sum_g.zero_()
        if index % eval_every == 0:
            drift, beats = gan.quality(reference)
            print(f"      drift {drift:.3f} peak {beats.max().item():.2f}")
            torch.save({k: v.cpu() for k, v in gan.avg.state_dict().items()}, "/tmp/bb04_gan.pt")
    assert math.isfinite(drift)


if __name__ == "__main__":
    main()
