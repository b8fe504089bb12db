"""Bayesian logistic regression by Hamiltonian Monte Carlo, four chains in one batch."""
import torch

CHAINS, DIM, ROWS = 4, 24, 800
WARMUP, DRAWS = 150, 350
TARGET = 0.8


def dataset(gen):
    X = torch.randn(ROWS, DIM, generator=gen)
    X[:, 1] = 0.9 * X[:, 0] + 0.3 * X[:, 1]
    X[:, 0] = 1.0
    beta = torch.randn(DIM, generator=gen) * (torch.rand(DIM, generator=gen) < 0.5)
    y = torch.bernoulli(torch.sigmoid(X @ beta), generator=gen)
    return X, y, beta


def log_density(q, X, y):
    logits = q @ X.t()
    like = (y * logits - torch.nn.functional.softplus(logits)).sum(-1)
    return like - 0.5 * (q * q).sum(-1) / 4.0


def gradient(q, X, y):
    return (y - torch.sigmoid(q @ X.t())) @ X - q / 4.0


@torch.compile
def trajectory(q, p, eps, steps, inv_mass, X, y):
    p = p + 0.5 * eps * gradient(q, X, y)
    for k in range(steps):
        q = q + eps * inv_mass * p
        scale = 1.0 if k < steps - 1 else 0.5
        p = p + scale * eps * gradient(q, X, y)
    return q, p


class DualAveraging:
    """Step-size adaptation (Hoffman and Gelman 2014)."""

    def __init__(self, eps0):
        self.mu, self.h, self.log_bar, self.t = torch.log(10 * torch.tensor(eps0)), torch.tensor(0.0), torch.tensor(0.0), 0
        self.eps = torch.tensor(eps0)

    def update(self, accept):
        self.t += 1
        w = 1 / (self.t + 10)
        self.h = (1 - w) * self.h + w * (TARGET - accept)
        log_eps = self.mu - self.t ** 0.5 / 0.05 * self.h
        k = self.t ** -0.75
        self.log_bar = k * log_eps + (1 - k) * self.log_bar
        self.eps = log_eps.exp()

    def freeze(self):
        self.eps = self.log_bar.exp()


def split_rhat(draws):
    """draws: [n, chains, dim]."""
    n = draws.size(0) // 2
    halves = torch.cat([draws[:n], draws[n:2 * n]], 1)
    w = halves.var(0).mean(0)
    b = n * halves.mean(0).var(0)
    return (((n - 1) / n * w + b / n) / w).sqrt()


def effective_size(draws, max_lag=30):
    c = draws - draws.mean(0)
    var = (c * c).mean((0, 1))
    rho = torch.stack([(c[k:] * c[:-k]).mean((0, 1)) / var for k in range(1, max_lag)])
    positive = (rho > 0).cumprod(0)
    return draws.size(0) * draws.size(1) / (1 + 2 * (rho * positive).sum(0))


def run():
    gen = torch.Generator().manual_seed(11)
    X, y, beta = dataset(gen)
    q = 0.1 * torch.randn(CHAINS, DIM, generator=gen)
    inv_mass = torch.ones(DIM)
    step = DualAveraging(0.02)
    history, worst = [], None
    for it in range(WARMUP + DRAWS):
        p0 = torch.randn(CHAINS, DIM, generator=gen) / inv_mass.sqrt()
        steps = int(torch.randint(6, 19, (1,), generator=gen))
        q1, p1 = trajectory(q, p0, step.eps, steps, inv_mass, X, y)
        h0 = log_density(q, X, y) - 0.5 * (inv_mass * p0 * p0).sum(-1)
        h1 = log_density(q1, X, y) - 0.5 * (inv_mass * p1 * p1).sum(-1)
        a = (h1 - h0).clamp(max=0).exp()
        q = torch.where((torch.rand(CHAINS, generator=gen) < a).unsqueeze(-1), q1, q)
        if it < WARMUP:
            step.update(a.mean())
            if it == WARMUP - 1:
                step.freeze()
                print(f"warm-up done, step size {step.eps.item():.4f}")
            continue
        history.append(q)
        if len(history) % 70 == 0:
            draws = torch.stack(history)
            worst = split_rhat(draws).max()
            ess = effective_size(draws).min()
            print(f"draw {len(history)}: max R-hat {worst:.3f}, min ESS {ess:.0f}")
    draws = torch.stack(history)
    err = (draws.mean((0, 1)) - beta).abs().mean()
    print(f"mean |posterior mean - truth| = {err:.3f}, posterior sd {draws.std((0, 1)).mean():.3f}, R-hat {worst:.3f}")


if __name__ == "__main__":
    run()
