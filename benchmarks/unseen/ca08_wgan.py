"""WGAN-GP on one-dimensional waveforms."""
import math

import torch_xla
import torch
import torch.nn as nn
import torch_xla.core.xla_model as xm
from torch_xla.distributed.parallel_loader import MpDeviceLoader
from torch.utils.data import DataLoader, Dataset

LENGTH, LATENT = 64, 16


class Waves(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(0)
        t = torch.linspace(0, 2 * math.pi, LENGTH)
        f = torch.randint(1, 5, (n, 1), generator=g)
        phase = torch.rand(n, 1, generator=g) * 2 * math.pi
        self.x = torch.sin(f * t + phase) + 0.05 * torch.randn(n, LENGTH, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i]


def mlp(i, h, o):
    return nn.Sequential(nn.Linear(i, h), nn.LeakyReLU(0.2), nn.Linear(h, h), nn.LeakyReLU(0.2), nn.Linear(h, o))


class WGAN:
    def __init__(self, device, n_critic=4, penalty=10.0, ema=0.995):
        self.device, self.n_critic, self.penalty, self.decay = device, n_critic, penalty, ema
        self.gen = mlp(LATENT, 96, LENGTH).to(device)
        self.avg = mlp(LATENT, 96, LENGTH).to(device)
        self.avg.load_state_dict(self.gen.state_dict())
        self.critic = mlp(LENGTH, 96, 1).to(device)
        self.g_opt = torch.optim.Adam(self.gen.parameters(), lr=2e-4, betas=(0.0, 0.9))
        self.c_opt = torch.optim.Adam(self.critic.parameters(), lr=4e-4, betas=(0.0, 0.9))
        decay = lambda s: max(0.1, 1 - s / 400)
        self.g_sched = torch.optim.lr_scheduler.LambdaLR(self.g_opt, decay)
        self.c_sched = torch.optim.lr_scheduler.LambdaLR(self.c_opt, decay)
        self.gap = torch.zeros((), device=device)

    def latent(self, n):
        return torch.randn(n, LATENT, device=self.device)

    def gradient_penalty(self, real, fake):
        mix = torch.rand(real.shape[0], 1, device=self.device)
        point = (mix * real + (1 - mix) * fake).requires_grad_()
        grad, = torch.autograd.grad(self.critic(point).sum(), point, create_graph=True)
        return (grad.norm(dim=1) - 1).pow(2).mean()

    def critic_step(self, real):
        with torch.no_grad():
            fake = self.gen(self.latent(real.shape[0]))
        gap = self.critic(real).mean() - self.critic(fake).mean()
        loss = -gap + self.penalty * self.gradient_penalty(real, fake)
        self.c_opt.zero_grad()
        loss.backward()
        self.c_opt.step()
        self.c_sched.step()
        self.gap.lerp_(gap.detach(), 0.05)

    def generator_step(self, n):
        loss = -self.critic(self.gen(self.latent(n))).mean()
        self.g_opt.zero_grad()
        loss.backward()
        self.g_opt.step()
        self.g_sched.step()
        with torch.no_grad():
            for a, p in zip(self.avg.parameters(), self.gen.parameters()):
                a.lerp_(p, 1 - self.decay)

    @torch.no_grad()
    def spectrum(self, n=256):
        x = self.avg(self.latent(n)).cpu()
        return torch.fft.rfft(x).abs().mean(0)[:6]


def main():
    torch.manual_seed(0)
    device = xm.xla_device()
    loader = DataLoader(Waves(2048), batch_size=64, shuffle=True, drop_last=True)
    loader = MpDeviceLoader(loader, device)
    gan = WGAN(device)
    step = 0
    for epoch in range(8):
        for real in loader:
            gan.critic_step(real)
            step += 1
            if step % gan.n_critic == 0:
                gan.generator_step(real.shape[0])
            if step % 100 == 0:
                xm.mark_step()
                print(f"step {step} critic gap {gan.gap.item():.4f}", flush=True)
        if epoch % 4 == 3:
            print("spectrum", [round(v, 2) for v in gan.spectrum().tolist()])
            xm.save(gan.gen.state_dict(), "/tmp/ca08_gen.pt")


if __name__ == "__main__":
    main()
