"""Grey levels of typewritten characters as a mixture of discretised logistics: which machine typed this page?"""
import time
from collections import deque

import torch
import torch.nn.functional as F
from torch import nn

LEVELS = 64


def strike_patches(n, machine, generator, size=12):
    """Ink patches: machines differ in ribbon, pressure and slant."""
    t = torch.linspace(-1, 1, size)
    yy, xx = torch.meshgrid(t, t, indexing="ij")
    slant = (machine - 1.5) * 0.2 + 0.05 * torch.randn(n, 1, 1, generator=generator)
    offset = 0.3 * torch.randn(n, 1, 1, generator=generator)
    width = 0.15 + 0.05 * machine + 0.02 * torch.randn(n, 1, 1, generator=generator).abs()
    ink = torch.exp(-(((xx - slant * yy - offset) / width) ** 2))
    ribbon = 1 - 0.3 * torch.rand(n, size, size, generator=generator)
    return (ink * ribbon * (LEVELS - 1)).round()


class StrikeModel(nn.Module):
    """Predicts each row of a patch from the row above; `components` logistics per pixel."""

    def __init__(self, size=12, machines=4, components=10, hidden=32):
        super().__init__()
        self.size, self.components = size, components
        self.machine = nn.Embedding(machines, hidden)
        self.above = nn.Linear(size, hidden)
        self.mix = nn.Linear(hidden, size * components * 3)

    def forward(self, patches, machine):
        scaled = patches / (LEVELS / 2) - 1
        above = F.pad(scaled, (0, 0, 1, 0))[:, :-1]
        hidden = torch.tanh(self.above(above) + self.machine(machine)[:, None])
        return self.mix(hidden).unflatten(-1, (3, self.size, self.components)).unbind(-3)

    def nll(self, patches, machine):
        """Negative log likelihood in bits per pixel."""
        logits, means, log_scales = self(patches, machine)
        log_scales = log_scales.clamp(min=-6)
        value = (patches / (LEVELS / 2) - 1).unsqueeze(-1)
        centred = value - means
        inverse = torch.exp(-log_scales)
        plus = inverse * (centred + 1 / LEVELS)
        minus = inverse * (centred - 1 / LEVELS)
        inside = torch.sigmoid(plus) - torch.sigmoid(minus)
        lowest = plus - F.softplus(plus)
        highest = -F.softplus(minus)
        middle = torch.log(inside.clamp_min(1e-9))
        per_component = torch.where(value < -0.99, lowest, torch.where(value > 0.96, highest, middle))
        log_prob = torch.logsumexp(per_component + logits.log_softmax(-1), -1)
        return -log_prob.mean() / 0.6931

    def attribute(self, patches, machines=4):
        """Index of the likeliest machine for each patch."""
        scores = []
        for candidate in range(machines):
            logits, means, log_scales = self(patches, torch.full((len(patches),), candidate))
            value = (patches / (LEVELS / 2) - 1).unsqueeze(-1)
            log_scales = log_scales.clamp(min=-3)
            z = (value - means) * torch.exp(-log_scales)
            density = logits.log_softmax(-1) - z - log_scales - 2 * F.softplus(-z)
            scores.append(density.logsumexp(-1).sum((1, 2)))
        return torch.stack(scores).argmax(0)


class Archive:
    def __init__(self, per_machine, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.patches = torch.cat([strike_patches(per_machine, m, self.generator) for m in range(4)])
        self.machines = torch.arange(4).repeat_interleave(per_machine)

    def sample(self, n):
        pick = torch.randint(0, len(self.patches), (n,), generator=self.generator)
        return self.patches[pick], self.machines[pick]


def page_report(model, archive, pages, patches_per_page=64):
    """Majority vote over the patches of a page."""
    right = 0
    with torch.no_grad():
        for page in range(pages):
            machine = page % 4
            mine = archive.patches[archive.machines == machine]
            pick = torch.randint(0, len(mine), (patches_per_page,), generator=archive.generator)
            right += int(model.attribute(mine[pick]).bincount(minlength=4).argmax()) == machine
    return right / pages


def main():
    torch.manual_seed(5)
    archive, unseen = Archive(600, 0), Archive(200, 1)
    model = torch.compile(StrikeModel())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    window, began = deque(maxlen=50), time.perf_counter()
    for step in range(1, 361):
        patches, machines = archive.sample(256)
        loss = model.nll(patches, machines)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        window.append(loss.item())
        if step % 120 == 0:
            bits = sum(window) / len(window)
            model.eval()
            pages = page_report(model, unseen, 20)
            model.train()
            print(f"step {step}: {bits:.3f} bits per pixel, {pages:.2f} of the pages, {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
