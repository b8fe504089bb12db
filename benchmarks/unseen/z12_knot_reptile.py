"""Reptile meta-learning: adapt a sonar classifier to a new harbour from a handful of moorings."""
import copy

import torch
import torch.nn.functional as F
from torch import nn

WAYS, SHOTS, QUERY, RANGE_BINS = 5, 4, 12, 64


def harbour(generator):
    """One task: WAYS reflector signatures seen through a harbour-specific multipath filter."""
    t = torch.linspace(0, 1, RANGE_BINS)
    centres = torch.rand(WAYS, 3, 1, generator=generator)
    widths = 0.02 + 0.08 * torch.rand(WAYS, 3, 1, generator=generator)
    echoes = torch.exp(-((t - centres) / widths) ** 2).sum(1)
    multipath = torch.rand(1, 1, 5, generator=generator)
    n = SHOTS + QUERY
    x = echoes.repeat_interleave(n, 0) + 0.25 * torch.randn(WAYS * n, RANGE_BINS, generator=generator)
    x = F.conv1d(x[:, None], multipath, padding=2)
    y = torch.arange(WAYS).repeat_interleave(n)
    support = (torch.arange(WAYS * n) % n) < SHOTS
    return (x[support], y[support]), (x[~support], y[~support])


class EchoNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.a = nn.Conv1d(1, width, 5, 2, 2)
        self.b = nn.Conv1d(width, width, 5, 2, 2)
        self.c = nn.Conv1d(width, width, 3, 2, 1)
        self.norm = nn.GroupNorm(4, width)
        self.head = nn.Linear(width * RANGE_BINS // 8, WAYS)

    def forward(self, x):
        x = F.relu(self.a(x))
        x = F.relu(self.b(x))
        x = F.relu(self.norm(self.c(x)))
        return self.head(x.flatten(1))


class Reptile:
    def __init__(self, inner_steps=8, inner_lr=0.05, outer_lr=0.2):
        self.net = EchoNet()
        self.slow = copy.deepcopy(self.net.state_dict())
        self.loss = torch.compile(self._loss)
        self.inner_steps, self.inner_lr, self.outer_lr = inner_steps, inner_lr, outer_lr

    def _loss(self, x, y):
        return F.cross_entropy(self.net(x), y, label_smoothing=0.02)

    def adapt(self, support):
        self.net.load_state_dict(self.slow)
        parameters = list(self.net.parameters())
        for _ in range(self.inner_steps):
            loss = self.loss(*support)
            grads = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                torch._foreach_add_(parameters, grads, alpha=-self.inner_lr)
        return loss.detach()

    @torch.no_grad()
    def outer_step(self, progress):
        rate = self.outer_lr * (1 - progress)
        for name, value in self.net.state_dict().items():
            self.slow[name].lerp_(value, rate)

    def assess(self, generator, tasks=40):
        correct = 0.0
        for _ in range(tasks):
            support, (x, y) = harbour(generator)
            self.adapt(support)
            with torch.no_grad():
                correct += (self.net(x).argmax(1) == y).float().mean()
        return float(correct) / tasks


def spectrum_report(state):
    for name, value in state.items():
        if value.ndim >= 2:
            top = torch.linalg.matrix_norm(value.flatten(1), 2)
            print(f"  {name}: {tuple(value.shape)}, top singular value {top.item():.3f}")


def main():
    torch.manual_seed(14)
    generator = torch.Generator().manual_seed(14)
    learner = Reptile()
    meta_steps, running = 700, None
    for step in range(meta_steps):
        support, _ = harbour(generator)
        loss = learner.adapt(support)
        learner.outer_step(step / meta_steps)
        running = loss if running is None else running.lerp(loss, 0.05)
        if (step + 1) % 100 == 0:
            print(f"meta step {step + 1}: support loss {running.item():.3f}")
    spectrum_report(learner.slow)
    print(f"query accuracy in new harbours {learner.assess(torch.Generator().manual_seed(99)):.3f}")


if __name__ == "__main__":
    main()
