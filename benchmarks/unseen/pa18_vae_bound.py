"""A VAE on binarised patterns; the held-out likelihood is estimated by importance sampling."""
import torch_xla
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla.core.xla_model as xm


class Patterns:
    def __init__(self, n, side=8, seed=0):
        g = torch.Generator().manual_seed(seed)
        rows = torch.rand(n, side, 1, generator=g) < 0.3
        cols = torch.rand(n, 1, side, generator=g) < 0.3
        flip = torch.rand(n, side, side, generator=g) < 0.03
        self.data = ((rows | cols) ^ flip).float().flatten(1)

    def batches(self, size, gen=None):
        order = torch.randperm(len(self.data), generator=gen) if gen is not None else torch.arange(len(self.data))
        for chunk in order.split(size):
            yield self.data[chunk]


class VAE(nn.Module):
    def __init__(self, dim=64, hidden=64, latent=8):
        super().__init__()
        self.latent = latent
        self.enc = nn.Sequential(nn.Linear(dim, hidden), nn.Tanh(), nn.Linear(hidden, 2 * latent))
        self.dec = nn.Sequential(nn.Linear(latent, hidden), nn.Tanh(), nn.Linear(hidden, dim))

    def posterior(self, x):
        mean, log_var = self.enc(x).chunk(2, -1)
        return mean, log_var.clamp(-6, 4)

    def log_likelihood(self, x, z):
        return -F.binary_cross_entropy_with_logits(self.dec(z), x, reduction="none").sum(-1)

    def bound(self, x, noise, beta):
        mean, log_var = self.posterior(x)
        z = mean + (0.5 * log_var).exp() * noise
        kl = 0.5 * (mean ** 2 + log_var.exp() - 1 - log_var).sum(-1)
        return (self.log_likelihood(x, z) - beta * kl).mean()


def gaussian_log_prob(z, mean, log_var):
    return -0.5 * (math.log(2 * math.pi) + log_var + (z - mean) ** 2 / log_var.exp()).sum(-1)


class LikelihoodEstimator:
    def __init__(self, samples, device):
        self.samples, self.device = samples, device

    @torch.no_grad()
    def __call__(self, model, data, batch):
        model.eval()
        scores = []
        for x in data.batches(batch):
            x = x.to(self.device)
            mean, log_var = model.posterior(x)
            weights = []
            for _ in range(self.samples):
                z = mean + (0.5 * log_var).exp() * torch.randn(mean.shape).to(self.device)
                prior = gaussian_log_prob(z, torch.zeros_like(z), torch.zeros_like(z))
                weights.append(model.log_likelihood(x, z) + prior - gaussian_log_prob(z, mean, log_var))
            scores.append(torch.logsumexp(torch.stack(weights), 0) - math.log(self.samples))
        model.train()
        return torch.cat(scores).mean().item()


def fit(model, data, opt, beta, device, gen, batch=32):
    total, count = torch.zeros((), device=device), 0
    for x in data.batches(batch, gen):
        noise = torch.randn(len(x), model.latent, generator=gen)
        loss = -model.bound(x.to(device), noise.to(device), beta)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.detach()
        count += 1
        xm.mark_step()
    return total.item() / count


def main(epochs=12, check_every=6):
    torch.manual_seed(0)
    device = torch.device("xla")
    gen = torch.Generator().manual_seed(2)
    train, held_out = Patterns(512), Patterns(256, seed=1)
    model = VAE().to(device)
    opt = torch.optim.Adagrad(model.parameters(), lr=0.05)
    estimate = LikelihoodEstimator(samples=16, device=device)
    for epoch in range(1, epochs + 1):
        beta = torch.tensor(min(1.0, 0.1 + epoch / epochs)).to(device)
        loss = fit(model, train, opt, beta, device, gen)
        if epoch % check_every == 0:
            ll = estimate(model, held_out, batch=32)
            print(f"epoch {epoch}: negative bound {loss:.2f}, held-out log p {ll:.2f}")


if __name__ == "__main__":
    main()
