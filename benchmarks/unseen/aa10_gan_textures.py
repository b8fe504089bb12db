"""Non-saturating GAN on 8x8 textures with lazy R1 regularisation and averaged generator weights."""
import argparse
import copy

import torch_xla
import torch_xla.core.xla_model as xm
import torch
import torch.nn as nn
import torch.nn.functional as F

Z = 16


def generator(width=32):
    return nn.Sequential(nn.Linear(Z, width), nn.LeakyReLU(0.2), nn.Linear(width, 64), nn.Tanh())


def discriminator(width=32):
    return nn.Sequential(nn.Linear(64, width), nn.Softplus(), nn.Linear(width, 1))


def texture_batches(n, batch, seed):
    g = torch.Generator().manual_seed(seed)
    grid = torch.arange(8).float()
    yy, xx = torch.meshgrid(grid, grid, indexing="ij")
    for _ in range(n):
        angle = torch.rand(batch, 1, 1, generator=g) * 3.1416
        wave = torch.sin(xx * angle.cos() + yy * angle.sin() + torch.rand(batch, 1, 1, generator=g) * 6.28)
        yield (0.8 * wave).flatten(1)


class Trainer:
    def __init__(self, device, args):
        self.device, self.args = device, args
        self.G, self.D = generator(), discriminator()
        self.G_avg = copy.deepcopy(self.G).requires_grad_(False)
        for net in (self.G, self.D, self.G_avg):
            net.to(device)
        self.opt_g = torch.optim.Adam(self.G.parameters(), lr=args.lr, betas=(0.0, 0.99))
        self.opt_d = torch.optim.Adam(self.D.parameters(), lr=2 * args.lr, betas=(0.0, 0.98))
        self.stats = torch.zeros(3, device=device)

    def d_step(self, real):
        z = torch.randn(real.shape[0], Z, device=self.device)
        with torch.no_grad():
            fake = self.G(z)
        loss = F.softplus(-self.D(real)).mean() + F.softplus(self.D(fake)).mean()
        self.opt_d.zero_grad()
        loss.backward()
        self.opt_d.step()
        return loss.detach()

    def r1_step(self, real):
        real = real.detach().requires_grad_(True)
        (grad,) = torch.autograd.grad(self.D(real).sum(), real, create_graph=True)
        penalty = grad.pow(2).sum(1).mean()
        self.opt_d.zero_grad()
        (0.5 * self.args.gamma * self.args.r1_every * penalty).backward()
        self.opt_d.step()
        return penalty.detach()

    def g_step(self, batch):
        z = torch.randn(batch, Z, device=self.device)
        loss = F.softplus(-self.D(self.G(z))).mean()
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()
        with torch.no_grad():
            for a, p in zip(self.G_avg.parameters(), self.G.parameters()):
                a.lerp_(p, 0.01)
        return loss.detach()

    def fit(self, batches):
        for step, real in enumerate(batches):
            real = real.to(self.device)
            d = self.d_step(real)
            g = self.g_step(real.shape[0])
            self.stats[:2] += torch.stack([d, g])
            xm.mark_step()
            if step % self.args.r1_every == self.args.r1_every - 1:
                self.stats[2] += self.r1_step(real)
                xm.mark_step()
            if (step + 1) % self.args.log_every == 0:
                d, g, r = (self.stats / self.args.log_every).tolist()
                print(f"step {step + 1} d {d:.3f} g {g:.3f} r1 {r * self.args.r1_every:.3f}", flush=True)
                self.stats = torch.zeros(3, device=self.device)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=400)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--gamma", type=float, default=0.1)
    ap.add_argument("--r1-every", type=int, default=16)
    ap.add_argument("--log-every", type=int, default=80)
    args = ap.parse_args()
    torch.manual_seed(0)
    trainer = Trainer(xm.xla_device(), args)
    trainer.fit(texture_batches(args.steps, args.batch, seed=8))
    samples = trainer.G_avg(torch.randn(64, Z, device=trainer.device)).cpu()
    print(f"sample mean {samples.mean():.3f} std {samples.std():.3f}")


if __name__ == "__main__":
    main()
