"""Self-supervised features for pottery sherds: momentum contrast with a queue, then a nearest-neighbour probe."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm


def paint_sherds(n, size, kinds, seed):
    """Bands, dots and hatching under a curved outline."""
    g = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:size, 0:size] / size
    kind = g.integers(0, kinds, n)
    images = np.empty((n, 1, size, size), np.float32)
    for i, k in enumerate(kind):
        a, f, ph = 0.6 * k + g.normal(0, 0.05), 4 + 2 * (k % 3), g.uniform(0, 6)
        u = np.cos(a) * xx + np.sin(a) * yy
        pattern = np.sin(2 * np.pi * f * u + ph) * (1 if k % 2 else np.cos(2 * np.pi * f * xx))
        outline = (xx - 0.5) ** 2 + (yy - 0.5) ** 2 < g.uniform(0.15, 0.3)
        images[i, 0] = pattern * outline + 0.1 * g.normal(size=(size, size))
    return torch.from_numpy(images), torch.from_numpy(kind)


class ConvEncoder(nn.Module):
    def __init__(self, dim, width=6):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, 2, 1), nn.GroupNorm(3, width), nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, 2, 1), nn.GroupNorm(3, 2 * width), nn.ReLU(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(8 * width, 64), nn.ReLU(), nn.Linear(64, dim))

    def forward(self, x):
        return F.normalize(self.head(self.features(x)), dim=1)


class MoCo(nn.Module):
    def __init__(self, dim=32, K=256, m=0.99, T=0.1):
        super().__init__()
        self.K, self.m, self.T = K, m, T
        self.encoder_q, self.encoder_k = ConvEncoder(dim), ConvEncoder(dim)
        self.encoder_k.load_state_dict(self.encoder_q.state_dict())
        self.encoder_k.requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(dim, K), dim=0))
        self.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def _momentum_update(self):
        for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            k.mul_(self.m).add_(q, alpha=1 - self.m)

    @torch.no_grad()
    def _dequeue_and_enqueue(self, keys):
        n = keys.shape[0]
        ptr = int(self.queue_ptr)
        assert self.K % n == 0
        self.queue[:, ptr:ptr + n] = keys.t()
        self.queue_ptr[0] = (ptr + n) % self.K

    def forward(self, im_q, im_k):
        q = self.encoder_q(im_q)
        with torch.no_grad():
            self._momentum_update()
            k = self.encoder_k(im_k)
        l_pos = (q * k).sum(1, keepdim=True)
        l_neg = q @ self.queue.clone()
        logits = torch.cat([l_pos, l_neg], 1) / self.T
        labels = torch.zeros(len(q), dtype=torch.long, device=q.device)
        self._dequeue_and_enqueue(k)
        return logits, labels


class TwoViews:
    def __init__(self, noise=0.15):
        self.noise = noise

    def view(self, x):
        flip = torch.rand(len(x), 1, 1, 1, device=x.device) < 0.5
        x = torch.where(flip, x.flip(-1), x)
        scale = 0.6 + 0.8 * torch.rand(len(x), 1, 1, 1, device=x.device)
        hide = torch.rand(len(x), 1, 4, 4, device=x.device) < 0.2
        x = x.masked_fill(F.interpolate(hide.float(), x.shape[-2:]).bool(), 0.0)
        return x * scale + self.noise * torch.randn_like(x)

    def __call__(self, x):
        return self.view(x), self.view(x)


def probe(model, images, kind, device):
    """Leave-one-out nearest neighbour on the encoder's features."""
    with torch.no_grad():
        z = model.encoder_k(images.to(device)).cpu()
    sim = z @ z.t() - 2 * torch.eye(len(z))
    return (kind[sim.argmax(1)] == kind).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = xm.xla_device()
    images, _ = paint_sherds(640, 24, 6, 1)
    held_out, kind = paint_sherds(256, 24, 6, 2)
    model, two_views = MoCo().to(device), TwoViews()
    optimizer = torch.optim.SGD(model.encoder_q.parameters(), lr=args.lr, momentum=0.9)
    xm.mark_step()
    began = time.time()
    for epoch in range(args.epochs):
        losses = []
        for rows in torch.randperm(len(images)).split(args.batch_size):
            x1, x2 = two_views(images[rows].to(device))
            logits, labels = model(x1, x2)
            loss = F.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            xm.mark_step()
            losses.append(loss.detach())
        print(f"epoch {epoch} loss {torch.stack(losses).mean().item():.3f} "
              f"1-nn {probe(model, held_out, kind, device):.3f} {time.time() - began:.1f}s")


if __name__ == "__main__":
    main()
