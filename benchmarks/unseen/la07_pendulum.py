"""Identifies a damped, driven pendulum (length, friction, drive gain) from noisy angle records."""
import numpy as np
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm

GRAVITY = 9.81
DT = 0.02
SEGMENT = 4
SEGMENTS = 96
RECORD_STEPS = 400
ITERATIONS = 240
TRUE = {"length": 0.83, "friction": 0.22, "gain": 1.35}


def rk4(deriv, state, u, dt):
    k1 = deriv(state, u)
    k2 = deriv(state + 0.5 * dt * k1, u)
    k3 = deriv(state + 0.5 * dt * k2, u)
    k4 = deriv(state + dt * k3, u)
    return state + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


class Rig:
    """The bench: a fine simulation of the true pendulum, read by an encoder."""

    def __init__(self, seed, substeps=10):
        self.seed, self.substeps = seed, substeps

    def deriv(self, state, u):
        angle, speed = state
        torque = -GRAVITY / TRUE["length"] * np.sin(angle) - TRUE["friction"] * speed
        return np.array([speed, torque + TRUE["gain"] * u])

    def drive(self):
        t = np.arange(RECORD_STEPS) * DT
        return np.sin(2.1 * t) + 0.6 * np.sin(5.3 * t + 0.4)

    def record(self):
        rng = np.random.default_rng(self.seed)
        state = np.array([0.7, 0.0])
        drive, rows = self.drive(), []
        for u in drive:
            rows.append(state)
            for _ in range(self.substeps):
                state = rk4(self.deriv, state, u, DT / self.substeps)
        rows = np.asarray(rows) + rng.normal(scale=[0.002, 0.01], size=(RECORD_STEPS, 2))
        return rows.astype(np.float32), drive.astype(np.float32)


class Segments:
    """Cuts a rig's record into short shooting segments with random starts."""

    def __init__(self, rig, rng):
        self.rig, self.rng = rig, rng

    def draw(self, n):
        states, drive = self.rig.record()
        starts = self.rng.integers(0, len(states) - SEGMENT - 1, n)
        steps = starts[:, None] + np.arange(SEGMENT + 1)
        return torch.from_numpy(states[steps]), torch.from_numpy(drive[steps[:, :-1]])


class Pendulum(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_length = nn.Parameter(torch.tensor(0.3))
        self.log_friction = nn.Parameter(torch.tensor(-2.5))
        self.gain = nn.Parameter(torch.tensor(0.5))

    def deriv(self, state, u):
        angle, speed = state[:, 0], state[:, 1]
        torque = (-GRAVITY * torch.exp(-self.log_length) * torch.sin(angle)
                  - torch.exp(self.log_friction) * speed + self.gain * u)
        return torch.stack([speed, torque], dim=1)

    def forward(self, first, drive):
        state, path = first, []
        for k in range(SEGMENT):
            state = rk4(self.deriv, state, drive[:, k], DT)
            path.append(state)
        return torch.stack(path, dim=1)

    def describe(self):
        values = torch.stack([self.log_length.exp(), self.log_friction.exp(), self.gain])
        return dict(zip(TRUE, values.detach().cpu().tolist()))


def main():
    rng = np.random.default_rng(4)
    device = torch_xla.device()
    segments = Segments(Rig(seed=4), rng)
    model = Pendulum().to(device)
    opt = torch.optim.Adam(model.parameters(), lr=0.02)
    scale = torch.tensor([1.0, 0.2], device=device)

    losses = []
    for it in range(1, ITERATIONS + 1):
        states, drive = segments.draw(SEGMENTS)
        states, drive = states.to(device), drive.to(device)
        opt.zero_grad()
        path = model(states[:, 0], drive)
        loss = (((path - states[:, 1:]) * scale) ** 2).mean()
        loss.backward()
        xm.optimizer_step(opt)
        losses.append(loss.detach())
        xm.mark_step()
        if it % 40 == 0:
            found = model.describe()
            recent = torch.stack(losses[-40:]).mean().item()
            print(f"iteration {it}: loss {recent:.3e} "
                  + " ".join(f"{k} {v:.3f} (true {TRUE[k]})" for k, v in found.items()))


if __name__ == "__main__":
    main()
