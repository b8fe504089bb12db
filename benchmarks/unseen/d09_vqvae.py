"""Vector-quantized autoencoder on synthetic spectra; codes that nobody uses are put where the encoder is."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader, TensorDataset


def spectra(n, bins, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.arange(bins)
    centers = torch.randint(4, bins - 4, (n, 3), generator=g)
    widths = 1 + 2 * torch.rand(n, 3, generator=g)
    peaks = torch.exp(-(((x - centers[..., None]) / widths[..., None]) ** 2)).sum(1)
    return peaks + 0.02 * torch.randn(n, bins, generator=g)


class Codebook(nn.Module):
    def __init__(self, size, dim, decay=0.8):
        super().__init__()
        self.size, self.decay = size, decay
        self.register_buffer("codes", 0.5 * torch.randn(size, dim))
        self.register_buffer("usage", torch.ones(size))
        self.register_buffer("sums", self.codes.clone())

    def forward(self, z):
        flat = z.reshape(-1, z.shape[-1])
        index = torch.cdist(flat, self.codes).argmin(1)
        if self.training:
            self.update(flat.detach(), index)
        quantized = self.codes[index].view_as(z)
        commitment = F.mse_loss(z, quantized.detach())
        return z + (quantized - z).detach(), commitment, index

    @torch.no_grad()
    def update(self, flat, index):
        one_hot = F.one_hot(index, self.size).float()
        self.usage.mul_(self.decay).add_(one_hot.sum(0), alpha=1 - self.decay)
        self.sums.mul_(self.decay).add_(one_hot.T @ flat, alpha=1 - self.decay)
        self.codes.copy_(self.sums / self.usage.clamp(min=1e-3).unsqueeze(1))

    @torch.no_grad()
    def revive(self, flat, threshold):
        dead = (self.usage < threshold).nonzero().squeeze(1)
        if len(dead) == 0:
            return 0
        picked = flat[torch.randperm(len(flat))[: len(dead)].to(flat.device)]
        self.codes[dead] = picked
        self.sums[dead] = picked
        self.usage[dead] = 1.0
        return len(dead)


class Autoencoder(nn.Module):
    def __init__(self, bins, codes, dim=8, slots=4):
        super().__init__()
        self.slots, self.dim = slots, dim
        self.encoder = nn.Sequential(nn.Linear(bins, 64), nn.ReLU(), nn.Linear(64, slots * dim))
        self.codebook = Codebook(codes, dim)
        self.decoder = nn.Sequential(nn.Linear(slots * dim, 64), nn.ReLU(), nn.Linear(64, bins))

    def encode(self, x):
        return self.encoder(x).view(-1, self.slots, self.dim)

    def forward(self, x):
        quantized, commitment, index = self.codebook(self.encode(x))
        return self.decoder(quantized.flatten(1)), commitment, index


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--codes", type=int, default=96)
    parser.add_argument("--bins", type=int, default=48)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch_xla.device()
    loader = DataLoader(TensorDataset(spectra(args.batch_size * 12, args.bins, 0)), args.batch_size, shuffle=True, drop_last=True)
    model = Autoencoder(args.bins, args.codes).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        revived, perplexities, total = 0, [], torch.zeros((), device=device)
        for (x,) in pl.MpDeviceLoader(loader, device):
            output, commitment, index = model(x)
            error = F.mse_loss(output, x)
            optimizer.zero_grad()
            (error + 0.25 * commitment).backward()
            optimizer.step()
            total += error.detach()
            share = F.one_hot(index, args.codes).float().mean(0)
            perplexities.append(torch.exp(-(share * (share + 1e-9).log()).sum()).item())
            with torch.no_grad():
                revived += model.codebook.revive(model.encode(x).flatten(0, 1), threshold=0.15)
        mean = sum(perplexities) / len(perplexities)
        print(f"epoch {epoch}: error {total.item() / len(loader):.4f} perplexity {mean:.1f} revived {revived}", flush=True)


if __name__ == "__main__":
    main()
