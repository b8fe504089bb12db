"""Calibrate a drag closure for fountain jets: adaptive integration inside an evolution strategy."""
import logging
from dataclasses import dataclass

import torch
from torch import nn

logger = logging.getLogger("fountain")


@dataclass
class Tolerances:
    absolute: float = 1e-5
    relative: float = 3e-5
    first: float = 0.01
    largest: float = 0.1


class DragClosure(nn.Module):
    """Maps jet state (speed, height, breakup age) to drag and entrainment coefficients."""

    def __init__(self, width=24):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2))

    def forward(self, state):
        speed = state[:, 2:4].norm(dim=1, keepdim=True)
        raw = self.net(torch.cat([speed / 10, state[:, 1:2] / 5, state[:, 4:5]], 1))
        return 0.02 + 0.1 * torch.sigmoid(raw)


class Jets(nn.Module):
    def __init__(self):
        super().__init__()
        self.closure = DragClosure()
        self.accepted = self.rejected = 0

    def derivative(self, state):
        velocity = state[:, 2:4]
        drag, entrain = self.closure(state).unbind(1)
        speed = velocity.norm(dim=1)
        gravity = torch.tensor([0.0, -9.81])
        acceleration = gravity - (drag * speed)[:, None] * velocity
        ageing = entrain * speed
        return torch.cat([velocity, acceleration, ageing[:, None]], 1)

    def attempt(self, state, h, tol):
        """One Bogacki-Shampine step; returns the proposed state, the next step size and the error's ratio to the tolerance."""
        k1 = self.derivative(state)
        k2 = self.derivative(state + 0.5 * h * k1)
        k3 = self.derivative(state + 0.75 * h * k2)
        proposal = state + h * (2 * k1 + 3 * k2 + 4 * k3) / 9
        k4 = self.derivative(proposal)
        error = h * (-5 * k1 + 6 * k2 + 8 * k3 - 9 * k4) / 72
        scale = tol.absolute + tol.relative * torch.maximum(state.abs(), proposal.abs())
        ratio = (error / scale).square().mean().sqrt()
        factor = (0.97 * ratio.clamp(min=1e-6) ** (-1 / 3)).clamp(0.2, 4.0)
        following = (h * factor).clamp(max=tol.largest)
        return proposal, following, ratio


def fly(jets, attempt, nozzles, duration, tol):
    state, clock = nozzles, torch.zeros(())
    h = torch.tensor(tol.first)
    while clock < duration:
        h = torch.minimum(h, duration - clock + 1e-6)
        proposal, following, ratio = attempt(state, h, tol)
        logger.debug("step size candidate %s", following)
        if ratio > 1.0:
            jets.rejected += 1
        else:
            jets.accepted += 1
            state, clock = proposal, clock + h
        h = following
    return state


def nozzle_bank(count):
    angle = torch.deg2rad(50 + 35 * torch.rand(count))
    speed = 6 + 8 * torch.rand(count)
    zeros = torch.zeros(count)
    return torch.stack([zeros, zeros, speed * angle.cos(), speed * angle.sin(), zeros], 1)


@torch.no_grad()
def evolve(jets, attempt, nozzles, landings, generations, population=8, sigma=0.05, rate=0.1):
    tol, duration = Tolerances(), torch.tensor(1.2)
    centre = nn.utils.parameters_to_vector(jets.closure.parameters())
    for generation in range(generations):
        noise = torch.randn(population // 2, len(centre))
        noise = torch.cat([noise, -noise])
        losses = []
        for direction in noise:
            nn.utils.vector_to_parameters(centre + sigma * direction, jets.closure.parameters())
            final = fly(jets, attempt, nozzles, duration, tol)
            losses.append((final[:, :2] - landings).square().mean())
        losses = torch.stack(losses)
        advantage = (losses - losses.mean()) / (losses.std() + 1e-8)
        centre = centre - rate * (advantage[:, None] * noise).mean(0) / sigma * 0.1
        if generation % 5 == 0:
            logger.info("generation %d: loss %.4f (accepted %d, rejected %d)",
                        generation, losses.mean(), jets.accepted, jets.rejected)


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(6)
    nozzles = nozzle_bank(64)
    truth = Jets()
    with torch.no_grad():
        landings = fly(truth, truth.attempt, nozzles, torch.tensor(1.2), Tolerances())[:, :2]
    jets = Jets()
    attempt = torch.compile(jets.attempt, backend="eager")
    evolve(jets, attempt, nozzles, landings, generations=80)


if __name__ == "__main__":
    main()
