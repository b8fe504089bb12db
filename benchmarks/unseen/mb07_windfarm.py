"""Nowcast wind-farm power with a spectral graph network over the turbine layout.

Node signals are ten-minute SCADA windows.  The graph weights come from the layout and
the wake direction sector; Chebyshev filters in space, gated temporal convs in time.
"""
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

N_TURB, WINDOW, HORIZON = 96, 18, 3


def farm_layout(gen):
    rows, cols = 8, N_TURB // 8
    grid = torch.stack(torch.meshgrid(torch.arange(rows), torch.arange(cols), indexing="ij"), -1)
    return grid.reshape(-1, 2).float() * 0.6 + 0.08 * torch.randn(N_TURB, 2, generator=gen)


def scada(n_steps, pos, gen):
    """Advected wind field sampled at the turbines, through a power curve."""
    t = torch.arange(n_steps).float()
    base = 8 + 2.5 * torch.sin(2 * math.pi * t / 144) + 1.2 * torch.sin(2 * math.pi * t / 37)
    gust = torch.zeros(n_steps, N_TURB)
    for k in range(1, 7):
        phase = 2 * math.pi * torch.rand((), generator=gen)
        gust += torch.sin(k * (0.11 * t.unsqueeze(1) - 0.7 * pos[:, 0]) + phase) / k
    speed = base.unsqueeze(1) + gust + 0.3 * torch.randn(n_steps, N_TURB, generator=gen)
    power = ((speed - 3).clamp(0, 9) / 9) ** 3
    return torch.stack([speed / 12, power], -1)


class LayoutGraph(nn.Module):
    """Wake-aware adjacency of the farm and its Chebyshev basis."""

    def __init__(self, pos, order, scale=1.0, wake=(1.0, 0.25)):
        super().__init__()
        self.register_buffer("pos", pos)
        self.register_buffer("axes", torch.tensor(wake))
        self.order, self.scale = order, scale

    def laplacian(self):
        d = (self.pos.unsqueeze(0) - self.pos.unsqueeze(1)) * self.axes
        w = torch.exp(-(d**2).sum(-1) / self.scale) * (1 - torch.eye(len(self.pos)))
        inv = w.sum(1).rsqrt()
        return torch.eye(len(self.pos)) - inv.unsqueeze(1) * w * inv

    def forward(self):
        lap = self.laplacian()
        lmax = torch.linalg.eigvalsh(lap)[-1]
        eye = torch.eye(len(lap))
        scaled = 2 * lap / lmax - eye
        basis = [eye, scaled]
        for _ in range(self.order - 2):
            basis.append(2 * scaled @ basis[-1] - basis[-2])
        return torch.stack(basis)


class ChebConv(nn.Module):
    def __init__(self, graph, c_in, c_out):
        super().__init__()
        self.graph = graph
        self.mix = nn.Linear(c_in * graph.order, c_out)

    def forward(self, x):
        basis = self.graph()
        h = torch.einsum("kij,bjc->bikc", basis, x)
        return self.mix(h.flatten(2))


class Nowcaster(nn.Module):
    def __init__(self, pos, width=24, order=4):
        super().__init__()
        self.time_in = nn.Linear(WINDOW * 2, width)
        graph = LayoutGraph(pos, order)
        self.space = nn.ModuleList([ChebConv(graph, width, width) for _ in range(3)])
        self.gate = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])
        self.out = nn.Linear(width, HORIZON)

    def forward(self, x):
        h = self.time_in(x.transpose(1, 2).flatten(2))
        for conv, gate in zip(self.space, self.gate):
            h = h + torch.tanh(conv(h)) * torch.sigmoid(gate(h))
        return self.out(h)


def windows(series, starts):
    x = torch.stack([series[s:s + WINDOW] for s in starts.tolist()])
    y = torch.stack([series[s + WINDOW:s + WINDOW + HORIZON, :, 1] for s in starts.tolist()])
    return x, y.transpose(1, 2)


def main():
    torch.manual_seed(2)
    gen = torch.Generator().manual_seed(2)
    pos = farm_layout(gen)
    series = scada(3000, pos, gen)
    cut = 2400
    model = Nowcaster(pos)
    fast = torch.compile(model, backend="aot_eager", fullgraph=True)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(8):
        t0, total, n = time.time(), torch.zeros(()), 0
        starts = torch.randperm(cut - WINDOW - HORIZON, generator=gen)
        for idx in starts[: len(starts) // 16 * 16].view(-1, 16):
            x, y = windows(series, idx)
            loss = F.smooth_l1_loss(fast(x), y, beta=0.1)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            total += loss.detach()
            n += 1
        print(f"epoch {epoch} loss {total.item() / n:.5f} {time.time() - t0:.1f}s")
    with torch.no_grad():
        x, y = windows(series, torch.arange(cut, 3000 - WINDOW - HORIZON))
        mae = (model(x) - y).abs().mean((0, 1))
        persist = (x[:, -1, :, 1].unsqueeze(-1) - y).abs().mean((0, 1))
    print("MAE by horizon", [f"{m:.4f}" for m in mae.tolist()],
          "persistence", [f"{m:.4f}" for m in persist.tolist()])


if __name__ == "__main__":
    main()
