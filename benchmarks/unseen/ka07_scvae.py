"""Negative-binomial VAE for single-cell counts (a small scVI) on an XLA device.

Cells of four types with library-size noise; KL warm-up over the first epochs;
the ELBO of held-out cells is reported once an epoch.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

GENES, LATENT, TYPES = 600, 8, 4
BATCH, EVAL_BATCH = 128, 256
EPOCHS, WARMUP = 16, 5


def simulate(cells, generator):
    base = torch.randn(GENES, generator=generator) * 0.8
    programs = torch.randn(TYPES, GENES, generator=generator)
    programs *= (torch.rand(TYPES, GENES, generator=generator) < 0.1).float() * 1.5
    kind = torch.randint(0, TYPES, (cells,), generator=generator)
    depth = torch.exp(0.4 * torch.randn(cells, 1, generator=generator))
    rate = torch.exp(base + programs[kind]) * depth
    return torch.poisson(rate, generator=generator), kind


class CountVAE(nn.Module):
    def __init__(self, hidden=128):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(GENES, hidden), nn.LayerNorm(hidden), nn.ReLU(),
                                     nn.Linear(hidden, 2 * LATENT))
        self.decoder = nn.Sequential(nn.Linear(LATENT, hidden), nn.LayerNorm(hidden), nn.ReLU(),
                                     nn.Linear(hidden, GENES))
        self.log_theta = nn.Parameter(torch.zeros(GENES))

    def encode(self, counts):
        return self.encoder(torch.log1p(counts)).chunk(2, dim=1)

    def forward(self, counts, noise):
        mean, log_var = self.encode(counts)
        z = mean + noise * torch.exp(0.5 * log_var)
        library = counts.sum(1, keepdim=True)
        mu = F.softmax(self.decoder(z), dim=1) * library
        return mu, mean, log_var

    def negative_elbo(self, counts, noise, beta):
        mu, mean, log_var = self(counts, noise)
        theta = self.log_theta.exp()
        log_sum = torch.log(theta + mu + 1e-8)
        nb = (torch.lgamma(counts + theta) - torch.lgamma(theta) - torch.lgamma(counts + 1)
              + theta * (self.log_theta - log_sum)
              + counts * (torch.log(mu + 1e-8) - log_sum))
        kl = 0.5 * (mean.pow(2) + log_var.exp() - log_var - 1).sum(1)
        return (-nb.sum(1) + beta * kl).mean()


def batches(cells, size, shuffle):
    """Whole batches only; the order is drawn anew on every call."""
    order = torch.randperm(len(cells)) if shuffle else torch.arange(len(cells))
    for start in range(0, len(cells) - size + 1, size):
        yield cells[order[start:start + size]]


def main():
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(17)
    cells, kind = simulate(8192 + 1024, generator)
    train, held = cells[:8192], cells[8192:]
    device = torch_xla.device()
    model = CountVAE().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=2e-4, momentum=0.9)
    held_batches = [b.to(device) for b in batches(held, EVAL_BATCH, shuffle=False)]
    no_noise = torch.zeros(EVAL_BATCH, LATENT, device=device)
    full = torch.ones((), device=device)

    for epoch in range(EPOCHS):
        beta = torch.tensor(min(1.0, (epoch + 1) / WARMUP)).to(device)
        running = torch.zeros(()).to(device)
        model.train()
        steps = 0
        for counts in batches(train, BATCH, shuffle=True):
            counts = counts.to(device)
            noise = torch.randn(BATCH, LATENT, device=device)
            optimizer.zero_grad()
            loss = model.negative_elbo(counts, noise, beta)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 100.0)
            xm.optimizer_step(optimizer)
            running += loss.detach()
            steps += 1
            xm.mark_step()
        model.eval()
        held_out = torch.zeros(()).to(device)
        with torch.no_grad():
            for counts in held_batches:
                held_out += model.negative_elbo(counts, no_noise, full)
                xm.mark_step()
        fit, check = (torch.stack([running / steps, held_out / len(held_batches)])).tolist()
        print(f"epoch {epoch:2d} train {fit:.1f} held-out {check:.1f}")

    with torch.no_grad():
        latent = torch.cat([model.encode(b)[0] for b in held_batches]).cpu()
    centres = torch.stack([latent[kind[8192:] == t].mean(0) for t in range(TYPES)])
    nearest = torch.cdist(latent, centres).argmin(1)
    print(f"nearest-centre agreement {(nearest == kind[8192:]).float().mean():.3f}")


if __name__ == "__main__":
    main()
