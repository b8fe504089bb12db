"""GAN for short waveforms: two critic updates for one of the generator."""
import torch
import torch.nn as nn
import torch.nn.functional as F

import torch_xla

LENGTH, LATENT, BATCH, ROUNDS, CRITIC_STEPS, LOG_EVERY = 32, 8, 32, 50, 2, 25


def mlp(*dims):
    layers = []
    for a, b in zip(dims, dims[1:]):
        layers += [nn.Linear(a, b), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers[:-1])


class Trainer:
    def __init__(self, device):
        self.device = device
        self.gen = mlp(LATENT, 32, LENGTH).to(device)
        self.critic = mlp(LENGTH, 32, 1).to(device)
        self.opt_g = torch.optim.RMSprop(self.gen.parameters(), lr=1e-3)
        self.opt_c = torch.optim.RMSprop(self.critic.parameters(), lr=1e-3)
        self.d_avg = torch.zeros((), device=device)
        self.g_avg = torch.zeros((), device=device)

    def latent(self):
        return torch.randn(BATCH, LATENT, device=self.device)

    def critic_step(self, real):
        with torch.no_grad():
            fake = self.gen(self.latent())
        loss = F.softplus(-self.critic(real)).mean() + F.softplus(self.critic(fake)).mean()
        self.opt_c.zero_grad()
        loss.backward()
        self.opt_c.step()
        self.d_avg.mul_(0.9).add_(loss.detach(), alpha=0.1)
        torch_xla.sync()

    def generator_step(self):
        self.critic.requires_grad_(False)
        loss = F.softplus(-self.critic(self.gen(self.latent()))).mean()
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()
        self.critic.requires_grad_(True)
        self.g_avg.mul_(0.9).add_(loss.detach(), alpha=0.1)
        torch_xla.sync()


def waves(n):
    t = torch.linspace(0, 6.28, LENGTH)
    return torch.sin(t * (1 + 2 * torch.rand(n, 1)) + torch.rand(n, 1) * 6.28)


def main():
    torch.manual_seed(0)
    device = torch_xla.device()
    trainer = Trainer(device)
    for it in range(1, ROUNDS + 1):
        for _ in range(CRITIC_STEPS):
            trainer.critic_step(waves(BATCH).to(device))
        trainer.generator_step()
        if it % LOG_EVERY == 0:
            d, g = torch.stack([trainer.d_avg, trainer.g_avg]).tolist()
            print(f"round {it} critic {d:.3f} generator {g:.3f}")


if __name__ == "__main__":
    main()
