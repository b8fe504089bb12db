"""Hand pose from inertial sensors, trained with sharpness-aware minimisation, an average of weights and a fixed-size last batch."""
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

JOINTS, CHANNELS, SPAN = 10, 12, 32
SETTINGS = {"train": 640, "test": 150, "batch": 40, "epochs": 5, "rho": 0.05, "lr": 2e-3, "decay": 0.98, "penalty_every": 4}


def recordings(n, seed):
    """Joint angles move smoothly; sensors see mixtures of their second derivatives."""
    g = torch.Generator().manual_seed(seed)
    mixing = torch.randn(CHANNELS, JOINTS, generator=torch.Generator().manual_seed(7)) / math.sqrt(JOINTS)
    t = torch.linspace(0, 1, SPAN)
    freq = 1 + 2 * torch.rand(n, JOINTS, 1, generator=g)
    phase = 6.28 * torch.rand(n, JOINTS, 1, generator=g)
    size = 0.2 + torch.rand(n, JOINTS, 1, generator=g)
    angle = size * torch.sin(6.28 * freq * t + phase)
    signal = torch.einsum("cj,njt->nct", mixing, -angle * freq.square() / 4)
    signal = signal + 0.05 * torch.randn(n, CHANNELS, SPAN, generator=g)
    return signal, angle[:, :, -1]


class PoseNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.stem = nn.Conv1d(CHANNELS, width, 5, stride=2, padding=2)
        self.blocks = nn.ModuleList(nn.Conv1d(width, width, 3, padding=2 ** k, dilation=2 ** k) for k in range(3))
        self.norms = nn.ModuleList(nn.GroupNorm(6, width) for _ in range(3))
        self.head = nn.Linear(width * SPAN // 2, JOINTS)

    def forward(self, x):
        x = F.silu(self.stem(x))
        for conv, norm in zip(self.blocks, self.norms):
            x = x + F.silu(norm(conv(x)))
        return self.head(x.flatten(1))


class SharpnessAware:
    """Climbs to the worst point nearby, takes the gradient there, and steps from where it was."""

    def __init__(self, params, base, rho):
        self.params, self.base, self.rho = list(params), base, rho

    @torch.no_grad()
    def climb(self):
        norm = torch.stack([p.grad.norm() for p in self.params]).norm() + 1e-12
        self.moved = [p.grad * (self.rho / norm) for p in self.params]
        for p, e in zip(self.params, self.moved):
            p.add_(e)
        self.base.zero_grad()

    @torch.no_grad()
    def descend(self):
        for p, e in zip(self.params, self.moved):
            p.sub_(e)
        self.moved = None
        self.base.step()
        self.base.zero_grad()


class Average:
    def __init__(self, net, decay):
        self.net = copy.deepcopy(net).requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, net):
        for mine, theirs in zip(self.net.parameters(), net.parameters()):
            mine.lerp_(theirs, 1 - self.decay)


def objective(net, signal, angle, penalty):
    if not penalty:
        return F.smooth_l1_loss(net(signal), angle)
    out = net(signal)
    jittered = net(signal + 0.1 * torch.randn_like(signal))
    return F.smooth_l1_loss(out, angle) + 0.2 * F.mse_loss(jittered, out)


@torch.no_grad()
def test_error(net, signal, angle, batch, device):
    """Mean error in degrees; the last batch is filled up with zeros that a mask leaves out."""
    total = torch.zeros((), device=device)
    torch_xla.sync()
    for i in range(0, len(signal), batch):
        x, y = signal[i:i + batch], angle[i:i + batch]
        mask = torch.ones(batch, 1)
        if len(x) < batch:
            mask[len(x):] = 0
            x = F.pad(x, (0, 0, 0, 0, 0, batch - len(x)))
            y = F.pad(y, (0, 0, 0, batch - len(y)))
        x, y, mask = x.to(device), y.to(device), mask.to(device)
        total += ((net(x) - y).abs() * mask).sum()
        xm.mark_step()
    return math.degrees(total.item() / (len(signal) * JOINTS))


def main(cfg=SETTINGS):
    torch.manual_seed(0)
    device = torch_xla.device()
    signal, angle = recordings(cfg["train"], 1)
    test = recordings(cfg["test"], 2)
    net = PoseNet().to(device)
    average = Average(net, cfg["decay"])
    base = torch.optim.Adam(net.parameters(), lr=cfg["lr"])
    sam = SharpnessAware(net.parameters(), base, cfg["rho"])
    step = 0
    for epoch in range(cfg["epochs"]):
        losses = []
        order = torch.randperm(len(signal))
        for rows in order.split(cfg["batch"]):
            x, y = signal[rows].to(device), angle[rows].to(device)
            penalty = step % cfg["penalty_every"] == cfg["penalty_every"] - 1
            base.param_groups[0]["lr"] = cfg["lr"] * (0.55 + 0.45 * math.cos(math.pi * step / 100))
            loss = objective(net, x, y, penalty)
            loss.backward()
            sam.climb()
            objective(net, x, y, penalty).backward()
            sam.descend()
            average.update(net)
            losses.append(loss.detach())
            xm.mark_step()
            step += 1
        mean = torch.stack(losses).mean().item()
        error = test_error(average.net, *test, cfg["batch"], device)
        print(f"epoch {epoch} loss {mean:.4f} error of the average {error:.2f} degrees")


if __name__ == "__main__":
    main()
