"""Evolution strategy: a population of small controllers balances poles, all simulated at once on the device."""
import argparse
import logging

import torch
import torch_xla
import torch_xla.core.xla_model as xm

log = logging.getLogger("evolution")
STATE, HIDDEN = 4, 8


class Poles:
    """A linearized cart with a pole; every member of the population has its own, some starts each."""

    def __init__(self, population, starts, device):
        self.shape, self.device = (population, starts, STATE), device
        self.dynamics = torch.tensor(
            [[1, 0.05, 0, 0], [0, 1, -0.03, 0], [0, 0, 1, 0.05], [0, 0, 0.5, 1]], device=device
        ).T
        self.push = torch.tensor([0, 0.05, 0, -0.08], device=device)

    def reset(self):
        return 0.1 * torch.randn(self.shape, device=self.device)

    def step(self, state, force):
        state = (state @ self.dynamics + force * self.push).clamp(-3, 3)
        return state, -(state[..., 2].abs() + 0.1 * state[..., 0].abs()).mean(-1)


class Population:
    SIZES = (STATE * HIDDEN, HIDDEN, HIDDEN)

    def __init__(self, size, device):
        self.size = size
        self.mean = 0.1 * torch.randn(sum(self.SIZES), device=device)

    def ask(self, sigma):
        half = torch.randn(self.size // 2, len(self.mean), device=self.mean.device)
        noise = torch.cat([half, -half])
        return self.mean + sigma * noise, noise

    def tell(self, noise, fitness, sigma, rate):
        ranks = fitness.argsort().argsort().float() / (self.size - 1) - 0.5
        self.mean = self.mean + rate / (self.size * sigma) * (ranks @ noise)

    @classmethod
    def act(cls, genes, state):
        w1, b1, w2 = genes.split(cls.SIZES, dim=1)
        hidden = torch.tanh(torch.bmm(state, w1.view(-1, STATE, HIDDEN)) + b1.unsqueeze(1))
        return torch.tanh(torch.bmm(hidden, w2.unsqueeze(-1))) * 4


@torch.no_grad()
def generation(population, poles, steps, sigma, rate):
    genes, noise = population.ask(sigma)
    state, fitness = poles.reset(), torch.zeros(population.size, device=genes.device)
    xm.mark_step()
    for t in range(1, steps + 1):
        state, reward = poles.step(state, population.act(genes, state))
        fitness = fitness + reward / steps
        if t % 10 == 0:
            xm.mark_step()
    population.tell(noise, fitness, sigma, rate)
    xm.mark_step()
    return fitness


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--generations", type=int, default=20)
    parser.add_argument("--population", type=int, default=256)
    parser.add_argument("--starts", type=int, default=16)
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(0)
    device = torch_xla.device()
    population, poles = Population(args.population, device), Poles(args.population, args.starts, device)
    sigma, best = 0.3, torch.full((), -10.0, device=device)
    for number in range(args.generations):
        fitness = generation(population, poles, args.steps, sigma, rate=2.0)
        best = torch.maximum(best, fitness.max())
        sigma = max(0.05, sigma * 0.97)
        if number % 5 == 4:
            log.info("generation %d: mean %.3f best %.3f sigma %.3f", number, fitness.mean().item(), best.item(), sigma)


if __name__ == "__main__":
    main()
