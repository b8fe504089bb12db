"""Quantisation-aware training of a small gesture classifier for a microcontroller (int8 weights/activations)."""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

CHANNELS, WINDOW, GESTURES = 6, 48, 5


def gestures(n, seed):
    """Six-axis inertial windows: every gesture has its own frequencies and phases per axis."""
    proto = torch.Generator().manual_seed(99)
    freq = 1 + 4 * torch.rand(GESTURES, CHANNELS, 1, generator=proto)
    phase = 6.28 * torch.rand(GESTURES, CHANNELS, 1, generator=proto)
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(GESTURES, (n,), generator=g)
    speed = 0.85 + 0.3 * torch.rand(n, 1, 1, generator=g)
    t = torch.linspace(0, 1, WINDOW)
    x = torch.sin(6.28 * freq[y] * speed * t + phase[y])
    return x * (0.7 + 0.6 * torch.rand(n, 1, 1, generator=g)) + 1.2 * torch.randn(n, CHANNELS, WINDOW, generator=g), y


class RoundSTE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad


class FakeQuant(nn.Module):
    """Symmetric int8 fake quantisation with a moving-average range."""

    def __init__(self, momentum=0.95):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("amax", torch.ones(()))

    def forward(self, x):
        if self.training:
            peak = x.detach().abs().max().item()
            self.amax.mul_(self.momentum).add_((1 - self.momentum) * peak)
        scale = self.amax.clamp(min=1e-4) / 127
        return RoundSTE.apply((x / scale).clamp(-127, 127)) * scale


def quant_weight(w):
    scale = w.detach().abs().amax(tuple(range(1, w.ndim)), keepdim=True).clamp(min=1e-6) / 127
    return RoundSTE.apply(w / scale) * scale


class QConv(nn.Conv1d):
    def forward(self, x):
        return self._conv_forward(x, quant_weight(self.weight), self.bias)


class QLinear(nn.Linear):
    def forward(self, x):
        return F.linear(x, quant_weight(self.weight), self.bias)


class GestureNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.q_in, self.q1, self.q2, self.q3 = (FakeQuant() for _ in range(4))
        self.c1 = QConv(CHANNELS, width, 5, stride=2, padding=2)
        self.c2 = QConv(width, width, 3, stride=2, padding=1)
        self.c3 = QConv(width, 2 * width, 3, stride=2, padding=1)
        self.head = QLinear(2 * width, GESTURES)

    def forward(self, x):
        x = self.q_in(x)
        x = self.q1(F.relu(self.c1(x)))
        x = self.q2(F.relu(self.c2(x)))
        x = self.q3(F.relu(self.c3(x)).mean(-1))
        return self.head(x)


def export_size(net):
    bytes_ = sum(p.numel() * (1 if p.ndim > 1 else 4) for p in net.parameters())
    return bytes_ / 1024


@torch.no_grad()
def accuracy(model, net, x, y):
    net.eval()
    right = sum((model(a).argmax(-1) == b).sum() for a, b in zip(x.split(100), y.split(100)))
    net.train()
    return right.item() / len(y)


def main(epochs=8, batch=100):
    torch.manual_seed(0)
    x, y = gestures(3000, 0)
    test_x, test_y = gestures(1000, 1)
    net = GestureNet()
    model = torch.compile(net, backend="aot_eager")
    opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=epochs * (len(x) // batch))
    for epoch in range(epochs):
        t0 = time.time()
        total = torch.zeros(())
        for idx in torch.randperm(len(x)).split(batch):
            loss = F.cross_entropy(model(x[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            opt.step()
            sched.step()
            total += loss.detach()
        print(f"epoch {epoch} loss {total.item() / (len(x) // batch):.3f} int8 acc "
              f"{accuracy(model, net, test_x, test_y):.3f} {time.time() - t0:.1f}s", flush=True)
    print(f"flash needed: {export_size(net):.1f} KiB, ranges "
          f"{[round(q.amax.item(), 2) for q in (net.q_in, net.q1, net.q2, net.q3)]}")


if __name__ == "__main__":
    main()
