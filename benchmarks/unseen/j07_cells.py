"""Variational autoencoder of single-cell counts with batch correction (scVI-like)."""
import time

import numpy as np
import torch
from torch import nn
from torch.distributions import Normal, NegativeBinomial, kl_divergence
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
import torch_xla
import torch_xla.core.xla_model as xm

GENES, PLATES, CELLS = 120, 9, 1280


class CountMatrix(Dataset):
    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        kinds = rng.gamma(1.0, 2.0, (6, GENES))
        plate_effect = np.exp(0.3 * rng.normal(size=(PLATES, GENES)))
        kind, self.plate = rng.integers(0, 6, CELLS), rng.choice(PLATES, CELLS, p=self._plate_shares())
        depth = rng.lognormal(0, 0.3, (CELLS, 1))
        self.counts = rng.poisson(kinds[kind] * plate_effect[self.plate] * depth).astype(np.float32)

    @staticmethod
    def _plate_shares():
        share = 0.6 ** np.arange(PLATES)
        return share / share.sum()

    def __len__(self):
        return CELLS

    def __getitem__(self, i):
        return torch.from_numpy(self.counts[i]), int(self.plate[i])


def mlp(n_in, n_hidden, n_out):
    return nn.Sequential(nn.Linear(n_in, n_hidden), nn.LayerNorm(n_hidden), nn.ReLU(), nn.Linear(n_hidden, n_out))


class PlateEncoding(nn.Module):
    """Offsets of the plates that a mini-batch holds."""

    def __init__(self, plates, width):
        super().__init__()
        self.offset = nn.Parameter(torch.zeros(plates, width))

    def forward(self, plate):
        hot = F.one_hot(plate).float()
        return hot @ self.offset[: hot.shape[1]]


class CellVAE(nn.Module):
    def __init__(self, latent=8, hidden=64):
        super().__init__()
        self.encoder = mlp(GENES, hidden, 2 * latent)
        self.plates = PlateEncoding(PLATES, latent)
        self.decoder = mlp(latent, hidden, GENES)
        self.log_dispersion = nn.Parameter(torch.zeros(GENES))

    def forward(self, counts, plate):
        library = counts.sum(1, keepdim=True)
        mu, log_sd = self.encoder(torch.log1p(counts)).chunk(2, -1)
        posterior = Normal(mu, F.softplus(log_sd) + 1e-3)
        z = posterior.rsample() + self.plates(plate)
        share = F.softmax(self.decoder(z), -1)
        rate = library * share + 1e-5
        logits = rate.log() - self.log_dispersion
        likelihood = NegativeBinomial(self.log_dispersion.exp() + 1e-4, logits=logits)
        return posterior, likelihood


def elbo(posterior, likelihood, counts, beta):
    reconstruction = -likelihood.log_prob(counts).sum(-1)
    prior = Normal(torch.zeros_like(posterior.loc), torch.ones_like(posterior.scale))
    divergence = kl_divergence(posterior, prior).sum(-1)
    return (reconstruction + beta * divergence).mean(), reconstruction.mean(), divergence.mean()


def warmup(step, steps=60):
    return 0.05 + 0.9 * min(1.0, step / steps)


class Trainer:
    def __init__(self, model, device, lr=2e-3, log_every=50):
        self.model, self.device, self.log_every = model.to(device), device, log_every
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        self.step = 0

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            started = time.time()
            for counts, plate in loader:
                counts, plate = counts.to(self.device), plate.to(self.device)
                posterior, likelihood = self.model(counts, plate)
                loss, reconstruction, divergence = elbo(posterior, likelihood, counts, warmup(self.step))
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                self.optimizer.step()
                torch_xla.sync()
                self.step += 1
                if self.step % self.log_every == 0:
                    print(f"{self.step:5d} reconstruction {reconstruction.item():.2f} kl {divergence.item():.3f}", flush=True)
            print(f"epoch {epoch}: {time.time() - started:.1f} s", flush=True)

    @torch.no_grad()
    def embed(self, loader):
        self.model.eval()
        latent = []
        for counts, _ in loader:
            mu, _ = self.model.encoder(torch.log1p(counts.to(self.device))).chunk(2, -1)
            torch_xla.sync()
            latent.append(mu.cpu())
        return torch.cat(latent)


def main():
    torch.manual_seed(0)
    np.random.seed(0)
    cells = CountMatrix()
    trainer = Trainer(CellVAE(), xm.xla_device())
    trainer.fit(DataLoader(cells, 32, shuffle=True, drop_last=True), epochs=2)
    latent = trainer.embed(DataLoader(cells, 320))
    print("latent spread", latent.std(0).mean().item())


if __name__ == "__main__":
    main()
