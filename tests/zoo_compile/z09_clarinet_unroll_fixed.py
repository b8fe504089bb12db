"""A recurrent clarinet model: reed control curves in, bore pressure envelope out."""
import math

import torch
import torch.nn as nn


def phrases(count, frames, seed):
    """Control curves (breath, embouchure, pitch) and the envelope of a toy reed oscillator."""
    g = torch.Generator().manual_seed(seed)
    t = torch.linspace(0, 1, frames)
    breath = torch.rand(count, 1, generator=g) * (1 - torch.exp(-12 * t))
    lip = 0.5 + 0.3 * torch.sin(2 * math.pi * (1 + torch.rand(count, 1, generator=g)) * t)
    pitch = torch.rand(count, 1, generator=g).expand(count, frames)
    pressure, trace = torch.zeros(count), []
    for k in range(frames):
        flow = (breath[:, k] - pressure).clamp(min=0).sqrt() * lip[:, k]
        pressure = 0.9 * pressure + 0.25 * flow * (1 - 0.4 * pitch[:, k])
        trace.append(pressure)
    return torch.stack([breath, lip, pitch], -1), torch.stack(trace, 1)


class BoreCell(nn.Module):
    """Gated cell with a leaky acoustic memory beside the hidden state."""

    def __init__(self, inputs, hidden):
        super().__init__()
        self.gates = nn.Linear(inputs + hidden + 1, 3 * hidden)
        self.leak = nn.Parameter(torch.full((hidden,), 2.0))

    def forward(self, controls, previous, hidden, memory):
        z = self.gates(torch.cat([controls, previous[:, None], hidden], 1))
        open_, write, candidate = z.chunk(3, 1)
        decay = torch.sigmoid(self.leak)
        memory = decay * memory + (1 - decay) * torch.sigmoid(write) * torch.tanh(candidate)
        return torch.sigmoid(open_) * torch.tanh(memory), memory


class Clarinet(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.hidden = hidden
        self.cell = BoreCell(3, hidden)
        self.read = nn.Linear(hidden, 1)

    def forward(self, controls, frames, truth=None, keep=None):
        batch = controls.shape[0]
        hidden, memory = controls.new_zeros(batch, self.hidden), controls.new_zeros(batch, self.hidden)
        pressure = controls.new_zeros(batch)
        out = []
        for k in range(frames):
            hidden, memory = self.cell(controls[:, k], pressure, hidden, memory)
            pressure = self.read(hidden)[:, 0]
            out.append(pressure)
            if truth is not None:
                pressure = torch.where(keep[:, k], truth[:, k], pressure)
        return torch.stack(out, 1)


def train(clarinet, controls, envelope, steps, batch=32):
    optimizer = torch.optim.Adam(clarinet.parameters(), lr=4e-3)
    frames = controls.shape[1]
    for step in range(steps):
        rows = torch.randint(len(controls), (batch,))
        keep = torch.rand(batch, frames) > step / steps
        predicted = clarinet(controls[rows], frames, envelope[rows], keep)
        loss = (predicted - envelope[rows]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(clarinet.parameters(), 1.0)
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step:3d}  mse {loss.item():.5f}")


@torch.no_grad()
def rollout_error(model, controls, envelope, horizons):
    model.eval()
    errors = {}
    free = model(controls, max(horizons))
    for frames in horizons:
        errors[frames] = (free[:, :frames] - envelope[:, :frames]).abs().mean().item()
    return errors


def main():
    torch.manual_seed(12)
    controls, envelope = phrases(512, 40, seed=1)
    held = phrases(64, 40, seed=2)
    clarinet = Clarinet()
    clarinet.cell.compile(backend="aot_eager")
    train(clarinet, controls, envelope, steps=120)
    for frames, error in rollout_error(clarinet, *held, horizons=(5, 10, 15, 20, 30, 40)).items():
        print(f"free run over {frames} frames: mean error {error:.4f}")


if __name__ == "__main__":
    main()
