"""A small convolutional GAN on synthetic shapes, on an XLA device."""
import torch
import torch.nn as nn
import torch.nn.functional as F

import torch_xla
import torch_xla.core.xla_model as xm

SIZE, LATENT, BATCH = 16, 24, 32
EPOCHS, STEPS = 4, 60


def shapes(n, gen):
    """Discs and squares at random places."""
    yy, xx = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    cx = torch.rand(n, 1, 1, generator=gen) * 8 + 4
    cy = torch.rand(n, 1, 1, generator=gen) * 8 + 4
    r = torch.rand(n, 1, 1, generator=gen) * 2 + 2
    disc = ((xx - cx) ** 2 + (yy - cy) ** 2 < r ** 2).float()
    square = (((xx - cx).abs() < r) & ((yy - cy).abs() < r)).float()
    kind = torch.rand(n, 1, 1, generator=gen) < 0.5
    return (torch.where(kind, disc, square) * 2 - 1)[:, None]


class Generator(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.start = nn.Linear(LATENT, width * 2 * 4 * 4)
        self.up1 = nn.ConvTranspose2d(width * 2, width, 4, 2, 1)
        self.up2 = nn.ConvTranspose2d(width, 1, 4, 2, 1)
        self.n1, self.n2 = nn.BatchNorm2d(width * 2), nn.BatchNorm2d(width)

    def forward(self, z):
        h = self.start(z).view(len(z), -1, 4, 4)
        h = self.up1(F.relu(self.n1(h)))
        return torch.tanh(self.up2(F.relu(self.n2(h))))


class Critic(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.c1 = nn.Conv2d(1, width, 4, 2, 1)
        self.c2 = nn.Conv2d(width, width * 2, 4, 2, 1)
        self.out = nn.Linear(width * 2 * 16, 1)

    def forward(self, x):
        h = F.leaky_relu(self.c1(x), 0.2)
        h = F.leaky_relu(self.c2(h), 0.2)
        return self.out(h.flatten(1)).squeeze(1)


class Meter:
    """Sums on the device; read when asked."""

    def __init__(self, device):
        self.sum = torch.zeros((), device=device)
        self.n = 0

    def add(self, value):
        self.sum += value.detach()
        self.n += 1

    def read(self):
        value = self.sum.item() / self.n
        self.sum = torch.zeros_like(self.sum)
        self.n = 0
        return value


def critic_step(gen, critic, opt, real, device):
    with torch.no_grad():
        fake = gen(torch.randn(len(real), LATENT, device=device))
    loss = F.relu(1 - critic(real)).mean() + F.relu(1 + critic(fake)).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(critic.parameters(), 5.0)
    xm.optimizer_step(opt)
    return loss


def generator_step(gen, critic, opt, device):
    loss = -critic(gen(torch.randn(BATCH, LATENT, device=device))).mean()
    opt.zero_grad()
    loss.backward()
    xm.optimizer_step(opt)
    return loss


def main():
    torch.manual_seed(5)
    device = torch_xla.device()
    data = shapes(BATCH * STEPS, torch.Generator().manual_seed(1)).to(device)
    gen, critic = Generator().to(device), Critic().to(device)
    opt_g = torch.optim.Adam(gen.parameters(), lr=4e-4, betas=(0.5, 0.99))
    opt_c = torch.optim.Adam(critic.parameters(), lr=4e-4, betas=(0.5, 0.99))
    fixed = torch.randn(64, LATENT, device=device)
    lc, lg = Meter(device), Meter(device)
    for epoch in range(EPOCHS):
        gen.train()
        order = torch.randperm(len(data)).view(STEPS, BATCH)
        for step in range(STEPS):
            real = data.index_select(0, order[step].to(device))
            lc.add(critic_step(gen, critic, opt_c, real, device))
            torch_xla.sync()
            if step % 2 == 1:
                lg.add(generator_step(gen, critic, opt_g, device))
                torch_xla.sync()
        gen.eval()
        with torch.no_grad():
            sample = gen(fixed)
        lit = (sample > 0).float().mean(dim=(1, 2, 3)).cpu()
        print(f"epoch {epoch}: critic {lc.read():.3f}, generator {lg.read():.3f}, "
              f"lit pixels {lit.mean():.3f} +- {lit.std():.3f} (data {(data > 0).float().mean().item():.3f})")
    xm.wait_device_ops()


if __name__ == "__main__":
    main()
