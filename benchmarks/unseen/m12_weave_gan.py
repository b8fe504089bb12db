"""A small GAN for woven textures (plain, twill, satin), with R1 regularisation every few steps."""
import io
import os
import struct
import tempfile
import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import torch_xla

SIZE, LATENT = 16, 16


def weave(rng):
    kind, period = rng.integers(3), rng.integers(3, 6)
    i, j = np.mgrid[0:SIZE, 0:SIZE]
    if kind == 0:
        over = (i + j) % 2 == 0
    elif kind == 1:
        over = (i + j) % period < period // 2
    else:
        over = (i * 2 + j) % 5 == 0
    warp, weft = rng.uniform(0.2, 1.0), rng.uniform(-1.0, -0.2)
    return np.where(over, warp, weft) + 0.05 * rng.normal(size=(SIZE, SIZE))


class Looms(torch.utils.data.IterableDataset):
    def __init__(self, pool=512, seed=0):
        rng = np.random.default_rng(seed)
        self.pool = np.stack([weave(rng) for _ in range(pool)]).astype(np.float32)
        self.rng = rng

    def __iter__(self):
        while True:
            sample = self.pool[self.rng.integers(len(self.pool))]
            yield torch.from_numpy(np.ascontiguousarray(sample[::self.rng.choice((-1, 1))]))[None]


class Generator(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(LATENT, width), nn.LeakyReLU(0.2), nn.Linear(width, 2 * width), nn.LeakyReLU(0.2),
                                 nn.Linear(2 * width, 2 * width), nn.LeakyReLU(0.2), nn.Linear(2 * width, SIZE * SIZE), nn.Tanh())

    def forward(self, z):
        return self.net(z).view(-1, 1, SIZE, SIZE)


class Critic(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(SIZE * SIZE, width), nn.LeakyReLU(0.2),
                                 nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


def png(gray):
    h, w = gray.shape
    raw = b"".join(b"\0" + row.tobytes() for row in gray)

    def chunk(tag, body):
        return struct.pack(">I", len(body)) + tag + body + struct.pack(">I", zlib.crc32(tag + body))

    out = io.BytesIO()
    out.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 0, 0, 0, 0)))
    out.write(chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b""))
    return out.getvalue()


class Gallery:
    def __init__(self, generator, folder, zoom=12):
        self.g, self.folder, self.zoom = generator, folder, zoom
        self.z = torch.randn(64, LATENT)

    @torch.no_grad()
    def save(self, step):
        x = self.g(self.z.to(next(self.g.parameters()).device))[:, 0].cpu().numpy()
        grid = x.reshape(8, 8, SIZE, SIZE).transpose(0, 2, 1, 3).reshape(8 * SIZE, 8 * SIZE)
        grid = np.kron(grid, np.ones((self.zoom, self.zoom)))
        grid = np.clip(grid * 127.5 + 127.5 + np.random.normal(0, 1, grid.shape), 0, 255).astype(np.uint8)
        with open(os.path.join(self.folder, f"{step:05d}.png"), "wb") as f:
            f.write(png(grid))


class Duel:
    def __init__(self, device, batch, r1_every=8, r1_weight=1.0):
        self.g, self.d = Generator().to(device), Critic().to(device)
        self.opt_g = torch.optim.Adam(self.g.parameters(), lr=2e-4, betas=(0.5, 0.99))
        self.opt_d = torch.optim.Adam(self.d.parameters(), lr=4e-4, betas=(0.5, 0.99))
        self.batch, self.device, self.r1_every, self.r1_weight = batch, device, r1_every, r1_weight

    def noise(self):
        return torch.randn(self.batch, LATENT, device=self.device)

    def critic_step(self, real, step):
        self.opt_d.zero_grad()
        fake = self.g(self.noise())
        loss = F.softplus(self.d(fake)).mean() + F.softplus(-self.d(real)).mean()
        if step % self.r1_every == 0:
            x = real.clone().requires_grad_()
            grad, = torch.autograd.grad(self.d(x).sum(), x, create_graph=True)
            loss = loss + self.r1_weight * self.r1_every / 2 * grad.square().flatten(1).sum(1).mean()
        loss.backward()
        self.opt_d.step()
        torch_xla.sync()
        return loss.detach()

    def generator_step(self):
        self.opt_g.zero_grad()
        loss = F.softplus(-self.d(self.g(self.noise()))).mean()
        loss.backward()
        self.opt_g.step()
        torch_xla.sync()
        return loss.detach()


def main():
    torch.manual_seed(6)
    device = torch_xla.device()
    batch = 128
    duel = Duel(device, batch)
    loader = torch.utils.data.DataLoader(Looms(), batch_size=batch)
    with tempfile.TemporaryDirectory() as folder:
        gallery, start = Gallery(duel.g, folder), time.time()
        for step, real in zip(range(400), loader):
            d_loss = duel.critic_step(real.to(device), step)
            g_loss = duel.generator_step()
            if step % 10 == 0:
                gallery.save(step)
            if step % 100 == 99:
                print(f"step {step} d {d_loss.item():.3f} g {g_loss.item():.3f} {time.time() - start:.1f}s")
        print(len(os.listdir(folder)), "sheets")


if __name__ == "__main__":
    main()
