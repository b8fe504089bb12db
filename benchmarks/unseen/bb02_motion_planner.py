import argparse
import math
import time

import torch_xla
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
from diffusers import DDPMScheduler
from diffusers.optimization import get_scheduler
from diffusers.training_utils import EMAModel


def make_trajectories(n, horizon, gen):
    """Arcs from a start to a goal, around an obstacle at the origin."""
    a = torch.rand(n, 1, generator=gen) * 2 * math.pi
    side = torch.randint(0, 2, (n, 1), generator=gen) * 2.0 - 1
    phase = a + side * torch.linspace(0, math.pi, horizon)[None]
    radius = 0.7 + 0.2 * torch.rand(n, 1, generator=gen)
    xy = torch.stack([radius * phase.cos(), radius * phase.sin()], -1)
    return xy, torch.cat([xy[:, 0], xy[:, -1]], -1)


class Denoiser(nn.Module):
    def __init__(self, horizon, width=64):
        super().__init__()
        self.register_buffer("freqs", torch.exp(torch.linspace(0, 4, 8)))
        self.time = nn.Sequential(nn.Linear(16, width), nn.SiLU())
        self.cond = nn.Linear(4, width)
        self.inp = nn.Linear(horizon * 2, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
            for _ in range(2))
        self.out = nn.Linear(width, horizon * 2)

    def forward(self, x, t, ends):
        angle = t[:, None].float() / 100 * self.freqs
        h = self.inp(x.flatten(1)) + self.time(torch.cat([angle.sin(), angle.cos()], 1)) + self.cond(ends)
        for b in self.blocks:
            h = h + b(h)
        return self.out(h).view_as(x)


class Planner:
    def __init__(self, cfg):
        self.cfg, self.device = cfg, torch.device("xla")
        self.model = Denoiser(cfg.horizon).to(self.device)
        self.scheduler = DDPMScheduler(num_train_timesteps=cfg.train_timesteps,
                                       beta_schedule="squaredcos_cap_v2", clip_sample=True)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        self.lr = get_scheduler("cosine", self.opt, num_warmup_steps=20,
                                num_training_steps=cfg.epochs * cfg.steps)
        self.ema = EMAModel(self.model.parameters(), decay=0.99)
        self.gen = torch.Generator().manual_seed(cfg.seed)

    def train_step(self, xy, ends):
        xy, ends = xy.to(self.device), ends.to(self.device)
        noise = torch.randn(xy.shape, generator=self.gen).to(self.device)
        t = torch.randint(0, self.cfg.train_timesteps, (len(xy),), generator=self.gen).to(self.device)
        noisy = self.scheduler.add_noise(xy, noise, t)
        loss = F.mse_loss(self.model(noisy, t, ends), noise)
        loss.backward()
        self.opt.step()
        self.lr.step()
        self.opt.zero_grad()
        xm.mark_step()
        return loss.detach()

    @torch.no_grad()
    def plan(self, ends, steps):
        self.model.eval()
        ends = ends.to(self.device)
        x = torch.randn(len(ends), self.cfg.horizon, 2, generator=self.gen).to(self.device)
        self.scheduler.set_timesteps(steps)
        for t in self.scheduler.timesteps:
            when = t.expand(len(ends)).to(self.device)
            eps = self.model(x, when, ends)
            x = self.scheduler.step(eps, t, x).prev_sample
            xm.mark_step()
        self.model.train()
        return x

    def fit(self):
        val_xy, val_ends = make_trajectories(16, self.cfg.horizon, self.gen)
        for epoch in range(self.cfg.epochs):
            began, total = time.time(), torch.zeros((), device=self.device)
            for _ in range(self.cfg.steps):
                total += self.train_step(*make_trajectories(self.cfg.batch, self.cfg.horizon, self.gen))
                self.ema.step(self.model.parameters())
            self.ema.store(self.model.parameters())
            self.ema.copy_to(self.model.parameters())
            plans = self.plan(val_ends, self.cfg.sample_steps)
            gap = (plans[:, -1].cpu() - val_ends[:, 2:]).norm(dim=-1).mean().item()
            self.ema.restore(self.model.parameters())
            print(f"epoch {epoch} mse {total.item() / self.cfg.steps:.4f} goal gap {gap:.3f} "
                  f"{time.time() - began:.1f}s", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--horizon", type=int, default=12)
    p.add_argument("--train-timesteps", type=int, default=100)
    p.add_argument("--sample-steps", type=int, default=20)
    p.add_argument("--seed", type=int, default=0)
    cfg = p.parse_args()
    torch.manual_seed(cfg.seed)
    Planner(cfg).fit()


if __name__ == "__main__":
    main()
