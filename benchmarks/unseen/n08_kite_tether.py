"""Learn the lateral dynamics of a tethered kite from flight logs: a compiled neural ODE, rolled out over two horizons."""
import math
import time
from typing import NamedTuple

import torch
from torch import Tensor, nn

DT = 0.05
HORIZONS = {"coarse": 4, "fine": 8}  # the curriculum: short roll-outs first, then long ones


class Flights(NamedTuple):
    states: Tensor  # flights, time, (angle, rate, azimuth)
    steering: Tensor  # flights, time


def fly(n, steps, seed):
    """The truth: a pendulum with drag and a steering moment that fades with the angle."""
    g = torch.Generator().manual_seed(seed)
    state = torch.randn(n, 3, generator=g) * torch.tensor([0.4, 0.2, 0.3])
    phase, pace = torch.rand(n, generator=g) * 2 * math.pi, 0.5 + torch.rand(n, generator=g)
    states, steering = [state], []
    for k in range(steps):
        u = torch.sin(phase + pace * k * DT * 3)
        angle, rate, azimuth = state.unbind(1)
        change = torch.stack([rate, -2.0 * angle.sin() - 0.4 * rate + u * angle.cos(), 0.7 * angle], dim=1)
        state = state + DT * change
        states.append(state)
        steering.append(u)
    return Flights(torch.stack(states, 1), torch.stack(steering, 1))


class Vehicle(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 3))
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 1.0]))

    def derivative(self, state, u):
        return self.net(torch.cat([state, u.unsqueeze(-1)], dim=-1)) * self.scale

    def forward(self, state, steering):
        """Heun's method; as many steps as there are steering inputs."""
        path = []
        for u in steering.unbind(1):
            k1 = self.derivative(state, u)
            k2 = self.derivative(state + DT * k1, u)
            state = state + 0.5 * DT * (k1 + k2)
            path.append(state)
        return torch.stack(path, dim=1)


def windows(flights, horizon, batch, generator):
    n, length = flights.steering.shape
    which = torch.randint(0, n, (batch,), generator=generator)
    start = torch.randint(0, length - horizon, (batch,), generator=generator)
    offset = start[:, None] + torch.arange(horizon)
    return (flights.states[which, start], flights.steering[which[:, None], offset],
            flights.states[which[:, None], offset + 1])


def train(vehicle, roll, flights, generator):
    optimizer = torch.optim.Adam(vehicle.parameters(), lr=5e-3)
    done = 0
    for phase, horizon in HORIZONS.items():
        started, running = time.perf_counter(), torch.zeros(())
        for _ in range(500):
            state, steering, target = windows(flights, horizon, 64, generator)
            error = (roll(state, steering) - target).square()
            loss = error.mean() * 100
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            running += loss.detach()
            done += 1
            if done % 100 == 0:
                print(f"  {done}: loss {running.item() / 100:.4f}")
                running.zero_()
        for group in optimizer.param_groups:
            group["lr"] *= 0.4
        print(f"{phase}: horizon {horizon}, {time.perf_counter() - started:.1f} s")


@torch.no_grad()
def long_flight_error(roll, flights):
    """Whole flights, piece by piece, from the model's own last state."""
    state, errors = flights.states[:, 0], []
    horizon = HORIZONS["fine"]
    for start in range(0, flights.steering.shape[1] - horizon + 1, horizon):
        path = roll(state, flights.steering[:, start:start + horizon].contiguous())
        errors.append((path - flights.states[:, start + 1:start + horizon + 1]).abs().mean())
        state = path[:, -1].contiguous()
    return torch.stack(errors)


def main():
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(1)
    logs, test = fly(48, 80, seed=10), fly(32, 80, seed=11)
    vehicle = Vehicle()
    roll = torch.compile(vehicle, dynamic=False, backend="aot_eager")
    train(vehicle, roll, logs, generator)
    vehicle.eval()
    errors = long_flight_error(roll, test)
    print("drift over a flight:", " ".join(f"{e:.3f}" for e in errors.tolist()))


if __name__ == "__main__":
    main()
