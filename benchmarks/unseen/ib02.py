"""Hamiltonian Monte Carlo for a hierarchical logistic regression (many chains at once)."""
from dataclasses import dataclass, field

import torch

torch.manual_seed(11)


@dataclass
class Data:
    x: torch.Tensor       # (n, d) covariates
    g: torch.Tensor       # (n, groups) one-hot of the hospital
    y: torch.Tensor       # (n,)
    true_beta: torch.Tensor


def simulate(n=1500, d=6, groups=12):
    x = torch.randn(n, d)
    which = torch.randint(0, groups, (n,))
    g = torch.nn.functional.one_hot(which, groups).float()
    beta = torch.linspace(-1, 1, d)
    alpha = 0.7 * torch.randn(groups)
    y = torch.bernoulli(torch.sigmoid(x @ beta + g @ alpha))
    return Data(x, g, y, beta)


def split(q, d):
    """q is (chains, d + groups + 1): beta, group effects, log tau."""
    return q[:, :d], q[:, d:-1], q[:, -1:]


def log_post_and_grad(q, x, g, y):
    """Joint log density and its gradient, written out by hand."""
    d = x.shape[1]
    beta, alpha, log_tau = split(q, d)
    logits = beta @ x.T + alpha @ g.T
    inv_var = torch.exp(-2 * log_tau)
    loglik = (y * logits - torch.nn.functional.softplus(logits)).sum(1)
    prior = (-0.5 * (beta / 2.5).square().sum(1) - 0.5 * (alpha.square() * inv_var).sum(1)
             - alpha.shape[1] * log_tau[:, 0] - 0.5 * log_tau[:, 0].square())
    resid = y - torch.sigmoid(logits)
    g_beta = resid @ x - beta / 2.5**2
    g_alpha = resid @ g - alpha * inv_var
    g_tau = (alpha.square() * inv_var).sum(1, keepdim=True) - alpha.shape[1] - log_tau
    return loglik + prior, torch.cat([g_beta, g_alpha, g_tau], 1)


N_LEAPFROG = 32


@torch.compile
def trajectory(q, p, eps, inv_mass, x, g, y):
    """One HMC proposal: leapfrog integration of the Hamiltonian flow."""
    logp, grad = log_post_and_grad(q, x, g, y)
    h0 = logp - 0.5 * (p * p * inv_mass).sum(1)
    for _ in range(N_LEAPFROG):
        p = p + 0.5 * eps * grad
        q = q + eps * inv_mass * p
        logp, grad = log_post_and_grad(q, x, g, y)
        p = p + 0.5 * eps * grad
    h1 = logp - 0.5 * (p * p * inv_mass).sum(1)
    return q, h1 - h0


@dataclass
class DualAveraging:
    """Step-size adaptation as in Hoffman & Gelman."""
    target: float = 0.8
    mu: float = -1.5
    h_bar: float = 0.0
    log_eps_bar: float = -3.0
    t: int = 0
    history: list = field(default_factory=list)

    def update(self, accept):
        self.t += 1
        eta = 1.0 / (self.t + 10)
        self.h_bar = (1 - eta) * self.h_bar + eta * (self.target - accept)
        log_eps = self.mu - self.h_bar * self.t**0.5 / 0.05 * 0.1
        w = self.t**-0.75
        self.log_eps_bar = w * log_eps + (1 - w) * self.log_eps_bar
        self.history.append(log_eps)
        return log_eps


def r_hat(draws):
    """Split-free potential scale reduction, draws (n, chains, dim)."""
    n = draws.shape[0]
    within = draws.var(0).mean(0)
    between = n * draws.mean(0).var(0)
    return torch.sqrt(((n - 1) / n * within + between / n) / within)


def run(chains=8, warmup=120, keep=180):
    data = simulate()
    dim = data.x.shape[1] + data.g.shape[1] + 1
    q = 0.1 * torch.randn(chains, dim)
    inv_mass = torch.ones(dim)
    eps = torch.tensor(0.02)            # a tensor: its value changes every step of the warm-up
    adapt = DualAveraging(mu=-3.5)
    draws, accepted = [], 0.0
    for it in range(warmup + keep):
        p = torch.randn(chains, dim) / inv_mass.sqrt()
        proposal, delta = trajectory(q, p, eps, inv_mass, data.x, data.g, data.y)
        prob = delta.clamp(max=0).exp().nan_to_num(0.0)
        q = torch.where((torch.rand(chains) < prob)[:, None], proposal, q)
        if it < warmup:
            # the adaptation is host arithmetic and needs the acceptance now
            eps = torch.tensor(min(adapt.update(prob.mean().item()), -2.0)).exp()
            if it == warmup - 1:
                eps = torch.tensor(adapt.log_eps_bar).exp()
        else:
            draws.append(q)
            accepted += prob.mean().item() / keep
        if (it + 1) % 50 == 0:
            print(f"iteration {it + 1}: eps {eps.item():.4f} acceptance {prob.mean().item():.2f}")
    draws = torch.stack(draws)
    rhat = r_hat(draws)
    print(f"acceptance {accepted:.3f}, worst r-hat {rhat.max().item():.3f}")
    for j, (m, s, t) in enumerate(zip(draws.mean((0, 1)), draws.std((0, 1)), data.true_beta)):
        print(f"beta[{j}] {m.item():+.3f} +- {s.item():.3f}   true {t.item():+.3f}")
    print(f"tau {draws[..., -1].exp().mean().item():.3f} (true 0.7)")


if __name__ == "__main__":
    run()
