# Bayesian optimisation of a (fake) chemical reactor with a Gaussian process fitted on XLA.
#
# Each experiment is expensive, so that we choose it with expected improvement
# and refit the kernel's parameters after every result.
import math

import numpy as np
import torch
import torch_xla

# %% the experiment
DIM = 4
rng = np.random.default_rng(7)


def reactor(x):
    """Yield for temperature, pressure, flow and catalyst share, all in [0, 1]."""
    t, p, f, c = x
    best = np.exp(-((t - 0.7) ** 2) / 0.05 - (p - 0.4) ** 2 / 0.15)
    side = 0.3 * np.sin(6 * f + 2 * t) * c
    return float(best * (0.6 + 0.4 * c) + side - 0.5 * (c - 0.5) ** 2 + rng.normal(0, 0.01))


# %% the surrogate
class Surrogate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.log_scale = torch.nn.Parameter(torch.full((DIM,), math.log(0.4)))
        self.log_amp = torch.nn.Parameter(torch.zeros(()))
        self.log_noise = torch.nn.Parameter(torch.tensor(-3.0))

    def kernel(self, a, b):
        a, b = a / self.log_scale.exp(), b / self.log_scale.exp()
        d2 = ((a[:, None] - b[None]) ** 2).sum(-1)
        d = (5 * d2 + 1e-10).sqrt()
        return (2 * self.log_amp).exp() * (1 + d + 5 * d2 / 3) * torch.exp(-d)

    def factor(self, x):
        noise = (2 * self.log_noise).exp() + 1e-4
        k = self.kernel(x, x) + noise * torch.eye(len(x), device=x.device)
        return torch.linalg.cholesky_ex(k)[0]

    def nll(self, x, y):
        low = self.factor(x)
        z = torch.linalg.solve_triangular(low, y[:, None], upper=False)
        prior = ((self.log_scale - math.log(0.4)) ** 2).sum() + 0.1 * (self.log_noise + 3) ** 2
        return 0.5 * (z**2).sum() + low.diagonal().log().sum() + prior

    @torch.no_grad()
    def predict(self, x, y, new):
        low = self.factor(x)
        cross = self.kernel(x, new)
        z = torch.linalg.solve_triangular(low, torch.cat([y[:, None], cross], 1), upper=False)
        mean = z[:, 1:].T @ z[:, 0]
        var = (2 * self.log_amp).exp() - (z[:, 1:] ** 2).sum(0)
        return mean, var.clamp_min(1e-8).sqrt()


def expected_improvement(mean, sd, best):
    z = (mean - best) / sd
    pdf = torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    cdf = 0.5 * (1 + torch.erf(z / math.sqrt(2)))
    return sd * (z * cdf + pdf)


class Loop:
    def __init__(self, device, initial=10, fit_steps=40, candidates=1024):
        self.device, self.fit_steps, self.candidates = device, fit_steps, candidates
        self.x = [rng.random(DIM) for _ in range(initial)]
        self.y = [reactor(x) for x in self.x]
        self.model = Surrogate().to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.03)

    def data(self):
        x = torch.tensor(np.array(self.x), dtype=torch.float32)
        y = torch.tensor(self.y, dtype=torch.float32)
        y = (y - y.mean()) / y.std()
        return x.to(self.device), y.to(self.device), y.max().to(self.device)

    def fit(self, x, y):
        for _ in range(self.fit_steps):
            loss = self.model.nll(x, y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            torch_xla.sync()
        return loss

    def propose(self, x, y, best):
        new = torch.rand(self.candidates, DIM, device=self.device)
        gain = expected_improvement(*self.model.predict(x, y, new), best)
        # the laboratory needs the point itself: one read per experiment
        return new[gain.argmax()[None]][0].cpu().numpy()

    def run(self, budget):
        for trial in range(budget):
            x, y, best = self.data()
            loss = self.fit(x, y)
            point = self.propose(x, y, best)
            self.x.append(point)
            self.y.append(reactor(point))
            if trial % 2 == 1:
                print(f"experiment {len(self.y):3d}: nll {loss.item():8.3f} last {self.y[-1]:.3f} best {max(self.y):.3f}")


# %% go
torch.manual_seed(0)
loop = Loop(torch_xla.device())
loop.run(6)
print("best settings", np.round(loop.x[int(np.argmax(loop.y))], 2), f"yield {max(loop.y):.3f}")
print("length scales", loop.model.log_scale.exp().detach().cpu().numpy().round(2))
