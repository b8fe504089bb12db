"""Train a small DCGAN as PyTorch's example does: the discriminator on real and fake images, then the generator."""

import torch
from _session import compiled, device, finish, sync
from torch import nn

nz, ngf, ndf, steps, batch = 8, 8, 8, 25, 8


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False),
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf, 1, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, ndf, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ndf * 2),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf * 2, 1, 4, 1, 0, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, x):
        return self.main(x).view(-1)


torch.manual_seed(999)
netG, netD = Generator().to(device), Discriminator().to(device)
optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
generate, discriminate = compiled(netG), compiled(netD)
criterion = nn.BCELoss()
images = torch.rand(steps * batch, 1, 16, 16) * 2 - 1
G_losses, D_losses = [], []
for i in range(steps):
    netD.zero_grad()
    real = images[i * batch : (i + 1) * batch].to(device)
    label = torch.full((batch,), 1.0, dtype=torch.float, device=device)
    output = discriminate(real)
    errD_real = criterion(output, label)
    errD_real.backward()
    D_x = output.mean().item()
    noise = torch.randn(batch, nz, 1, 1).to(device)
    fake = generate(noise)
    label.fill_(0.0)
    output = discriminate(fake.detach())
    errD_fake = criterion(output, label)
    errD_fake.backward()
    errD = errD_real + errD_fake
    optimizerD.step()

    netG.zero_grad()
    label.fill_(1.0)
    output = discriminate(fake)
    errG = criterion(output, label)
    errG.backward()
    optimizerG.step()
    sync()
    if i % 5 == 0:
        print(f"[{i}/{steps}] Loss_D: {errD.item():.4f} Loss_G: {errG.item():.4f} D(x): {D_x:.4f}")
    G_losses.append(errG.item())
    D_losses.append(errD.item())
finish(G_losses + D_losses)
