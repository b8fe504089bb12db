"""Bayes by backprop on light curves: period classes of variable stars with a variational network and predictive entropies."""
import math
import random
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
from torch.distributions import Normal, kl_divergence

POINTS, CLASSES, WIDTH = 64, 6, 96


class VariationalLinear(nn.Module):
    def __init__(self, n_in, n_out, prior_scale=0.5):
        super().__init__()
        self.mu = nn.Parameter(torch.randn(n_out, n_in) / math.sqrt(n_in))
        self.rho = nn.Parameter(torch.full((n_out, n_in), -4.0))
        self.bias = nn.Parameter(torch.zeros(n_out))
        self.register_buffer("prior_loc", torch.zeros(n_out, n_in))
        self.register_buffer("prior_scale", torch.full((n_out, n_in), prior_scale))

    def posterior(self):
        return Normal(self.mu, F.softplus(self.rho))

    def forward(self, x):
        q = self.posterior()
        weight = q.rsample() if self.training else q.mean
        return F.linear(x, weight, self.bias)

    def divergence(self):
        prior = Normal(self.prior_loc, self.prior_scale, validate_args=False)
        return kl_divergence(self.posterior(), prior).sum()


class StarNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = VariationalLinear(POINTS, WIDTH)
        self.mid = VariationalLinear(WIDTH, WIDTH)
        self.out = VariationalLinear(WIDTH, CLASSES)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, flux):
        h = torch.tanh(self.inp(flux))
        h = self.norm(h + torch.tanh(self.mid(h)))
        return self.out(h)

    def divergence(self):
        return sum(m.divergence() for m in self.modules() if isinstance(m, VariationalLinear))


class LightCurves:
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, CLASSES, (n,), generator=g)
        period = 0.15 + 0.12 * self.labels.float() + 0.02 * torch.randn(n, generator=g)
        phase = 6.28 * torch.rand(n, 1, generator=g)
        t = torch.linspace(0, 2, POINTS)
        wave = torch.sin(6.28 * t / period[:, None] + phase) + 0.4 * torch.sin(12.57 * t / period[:, None] + 2 * phase)
        self.flux = wave + 0.3 * torch.randn(n, POINTS, generator=g)
        self.order = random.Random(seed)

    def epoch(self, batch):
        idx = list(range(len(self.labels)))
        self.order.shuffle(idx)
        for i in range(0, len(idx) - batch + 1, batch):
            rows = idx[i:i + batch]
            yield self.flux[rows], self.labels[rows]


def elbo(model, flux, labels, n_data, beta):
    nll = F.cross_entropy(model(flux), labels)
    return nll + beta * model.divergence() / n_data, nll


@torch.no_grad()
def predictive(model, flux, draws=6):
    """Mean class probabilities over a few draws of the weights, and their entropy."""
    model.train()
    probs = torch.zeros(flux.shape[0], CLASSES, device=flux.device)
    torch_xla.sync()
    for _ in range(draws):
        probs += model(flux).softmax(-1) / draws
        torch_xla.sync()
    return probs, -(probs * probs.clamp(min=1e-9).log()).sum(-1)


def main(epochs=5, batch=50):
    torch.manual_seed(1)
    device = torch_xla.device()
    train, test = LightCurves(1500, 1), LightCurves(200, 2)
    model = StarNet().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    total = epochs * (1500 // batch)
    test_flux, test_labels = test.flux.to(device), test.labels.to(device)
    step = 0
    for epoch in range(epochs):
        model.train()
        trace = []
        for flux, labels in train.epoch(batch):
            beta = 0.02 + 0.4 * step / total
            loss, nll = elbo(model, flux.to(device), labels.to(device), 1500, beta)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            trace.append(nll.detach())
            torch_xla.sync()
            step += 1
        probs, entropy = predictive(model, test_flux)
        accuracy = (probs.argmax(-1) == test_labels).float().mean()
        summary = torch.stack([torch.stack(trace).mean(), accuracy, entropy.mean()])
        torch_xla.sync()
        mean_nll, accuracy, doubt = summary.tolist()
        print(f"epoch {epoch} nll {mean_nll:.3f} accuracy {accuracy:.3f} entropy {doubt:.3f}")


if __name__ == "__main__":
    main()
