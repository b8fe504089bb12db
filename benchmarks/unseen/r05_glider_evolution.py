"""Evolution strategies for a glider that looks for thermals (natural-gradient flavour, mirrored sampling)."""
import torch
from torch.distributions import Normal

import torch_xla


class Sky:
    """A field of Gaussian updrafts; all gliders of the population fly in it at once."""

    def __init__(self, n_thermals, device, seed):
        g = torch.Generator().manual_seed(seed)
        self.centre = (torch.rand(n_thermals, 2, generator=g) * 8 - 4).to(device)
        self.power = (torch.rand(n_thermals, generator=g) + 0.5).to(device)
        self.device = device

    def lift(self, pos):
        d2 = ((pos[:, None] - self.centre[None]) ** 2).sum(-1)
        return (self.power * torch.exp(-d2)).sum(-1)

    def reset(self, n):
        state = torch.zeros(n, 4, device=self.device)
        state[:, 3] = 3.0
        return state

    def step(self, state, bank):
        x, y, heading, height = state.unbind(1)
        heading = heading + 0.4 * bank
        x = x + 0.35 * torch.cos(heading)
        y = y + 0.35 * torch.sin(heading)
        climb = self.lift(torch.stack([x, y], 1)) - 0.25 - 0.05 * bank ** 2
        return torch.stack([x, y, heading, height + 0.3 * climb], 1), climb


class Genome:
    """Unpacks a flat vector into the weights of a two-layer controller, for a population at once."""

    sizes = (6, 10, 1)

    def __init__(self):
        self.shapes = [(self.sizes[0], self.sizes[1]), (1, self.sizes[1]), (self.sizes[1], 1), (1, 1)]
        self.numel = [a * b for a, b in self.shapes]

    @property
    def dim(self):
        return sum(self.numel)

    def act(self, flat, obs):
        w1, b1, w2, b2 = (w.view(-1, *s) for w, s in zip(flat.split(self.numel, 1), self.shapes))
        h = torch.tanh(torch.bmm(obs[:, None], w1) + b1)
        return torch.tanh(torch.bmm(h, w2) + b2)[:, 0, 0]


def observe(state, climb):
    x, y, heading, height = state.unbind(1)
    return torch.stack([x / 4, y / 4, torch.cos(heading), torch.sin(heading), height / 3, climb], 1)


def fly(sky, genome, flat, horizon):
    """Total climb of each glider, and where the flock has been."""
    state = sky.reset(flat.shape[0])
    climb = torch.zeros(flat.shape[0], device=sky.device)
    score = torch.zeros_like(climb)
    track = state[:1, :2]
    for _ in range(horizon):
        steer = Normal(genome.act(flat, observe(state, climb)), 0.1 * torch.ones_like(climb))
        state, climb = sky.step(state, steer.sample())
        score = score + climb
        track = torch.cat([track, state[:1, :2]])
        torch_xla.sync()
    return score, track


def centred_ranks(score):
    order = score.argsort().argsort().to(score.dtype)
    return order / (len(score) - 1) - 0.5


class Strategy:
    def __init__(self, dim, device, pairs=24, sigma=0.15, lr=0.2):
        self.mean = torch.zeros(dim, device=device)
        self.momentum = torch.zeros(dim, device=device)
        self.pairs, self.sigma, self.lr = pairs, sigma, lr

    def ask(self):
        self.noise = torch.randn(self.pairs, self.mean.numel(), device=self.mean.device)
        return self.mean + self.sigma * torch.cat([self.noise, -self.noise])

    def tell(self, score):
        rank = centred_ranks(score)
        weight = rank[:self.pairs] - rank[self.pairs:]
        grad = (weight[:, None] * self.noise).mean(0) / self.sigma
        self.momentum.mul_(0.9).add_(grad)
        self.mean.add_(self.momentum, alpha=self.lr)


def main(generations=30, horizon=14):
    torch.manual_seed(8)
    device = torch_xla.device()
    sky = Sky(7, device, seed=5)
    genome = Genome()
    strategy = Strategy(genome.dim, device)
    covered = []
    for gen in range(generations):
        flat = strategy.ask()
        torch_xla.sync()
        score, track = fly(sky, genome, flat, horizon)
        strategy.tell(score)
        covered.append((track[1:] - track[:-1]).norm(dim=1).sum())
        torch_xla.sync()
        if (gen + 1) % 5 == 0:
            print(f"generation {gen + 1:3d}  mean climb {score.mean().item():+.3f}  best {score.max().item():+.3f}")
    print("distance flown", [round(c, 2) for c in torch.stack(covered).tolist()[-3:]])


if __name__ == "__main__":
    main()
