"""Bayesian optimisation of a drilling site on a glacier: a Gaussian process is refitted after every borehole."""
import argparse
import math

import torch
import torch_xla


def ice_thickness(sites):
    """The unknown surface: metres of ice, scaled; stands for a borehole of two days."""
    x, y = sites[:, 0], sites[:, 1]
    bumps = torch.exp(-((x - 0.3) ** 2 + (y - 0.7) ** 2) / 0.05) + 0.7 * torch.exp(-((x - 0.8) ** 2 + (y - 0.2) ** 2) / 0.02)
    return bumps + 0.15 * torch.sin(9 * x) * torch.cos(7 * y)


class Kernel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.log_length = torch.nn.Parameter(torch.full((2,), -1.2))
        self.log_scale = torch.nn.Parameter(torch.tensor(0.0))
        self.log_noise = torch.nn.Parameter(torch.tensor(-3.0))

    def forward(self, a, b):
        diff = (a[:, None] - b[None]) / self.log_length.exp()
        r = diff.square().sum(-1).clamp(min=1e-12).sqrt()
        root = math.sqrt(5.0) * r
        return self.log_scale.exp() * (1 + root + root.square() / 3) * torch.exp(-root)

    def gram(self, x):
        return self(x, x) + (self.log_noise.exp() + 1e-4) * torch.eye(x.shape[0], device=x.device)


class Surrogate:
    def __init__(self, device, lr=0.05):
        self.device = device
        self.kernel = Kernel().to(device)
        self.optimizer = torch.optim.Adam(self.kernel.parameters(), lr=lr)

    def nll(self, x, y):
        chol, _ = torch.linalg.cholesky_ex(self.kernel.gram(x))
        alpha = torch.cholesky_solve(y[:, None], chol)
        fit = 0.5 * (y[:, None] * alpha).sum()
        return fit + chol.diagonal().log().sum() + 0.5 * y.shape[0] * math.log(2 * math.pi)

    def fit(self, x, y, steps):
        for _ in range(steps):
            self.optimizer.zero_grad()
            loss = self.nll(x, y)
            loss.backward()
            self.optimizer.step()
            torch_xla.sync()
        return loss.detach()

    @torch.no_grad()
    def posterior(self, x, y, candidates):
        chol, _ = torch.linalg.cholesky_ex(self.kernel.gram(x))
        cross = self.kernel(x, candidates)
        mean = cross.t() @ torch.cholesky_solve(y[:, None], chol)
        reduced = torch.linalg.solve_triangular(chol, cross, upper=False)
        variance = self.kernel.log_scale.exp() - reduced.square().sum(0)
        return mean[:, 0], variance.clamp(min=1e-9).sqrt()


def expected_improvement(mean, std, best):
    z = (mean - best) / std
    density = torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi)
    cumulative = 0.5 * (1 + torch.erf(z / math.sqrt(2)))
    return std * (z * cumulative + density)


class Campaign:
    def __init__(self, args):
        self.device = torch_xla.device()
        self.rng = torch.Generator().manual_seed(args.seed)
        start = torch.rand(args.start, 2, generator=self.rng)
        self.sites = start
        self.depths = ice_thickness(start)
        self.surrogate = Surrogate(self.device)
        self.args = args

    def next_site(self):
        scaled = (self.depths - self.depths.mean()) / self.depths.std()
        x, y = self.sites.to(self.device), scaled.to(self.device)
        self.surrogate.fit(x, y, self.args.fit_steps)
        candidates = torch.rand(self.args.candidates, 2, generator=self.rng)
        mean, std = self.surrogate.posterior(x, y, candidates.to(self.device))
        gain = expected_improvement(mean, std, y.max())
        chosen = gain.argmax().cpu()
        return candidates[chosen]

    def drill(self, site):
        depth = ice_thickness(site[None])
        self.sites = torch.cat([self.sites, site[None]])
        self.depths = torch.cat([self.depths, depth])

    def run(self):
        for hole in range(1, self.args.holes + 1):
            self.drill(self.next_site())
            if hole % 3 == 0:
                top = self.depths.max()
                where = self.sites[self.depths.argmax()].tolist()
                print(f"{hole:3d} holes, best {top:.3f} at ({where[0]:.2f}, {where[1]:.2f})")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--start", type=int, default=8)
    parser.add_argument("--holes", type=int, default=6)
    parser.add_argument("--fit-steps", type=int, default=10)
    parser.add_argument("--candidates", type=int, default=256)
    parser.add_argument("--seed", type=int, default=5)
    Campaign(parser.parse_args()).run()


if __name__ == "__main__":
    main()
