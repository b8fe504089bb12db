"""Spiking network that tells gestures of an event camera apart; surrogate gradients through time, PyTorch/XLA."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

SIDE, TIME, GESTURES, BATCH = 16, 10, 6, 32
EPOCHS, STEPS = 5, 60


class Events:
    """A blob that moves (or turns) in one of six ways: events of both polarities in TIME frames."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.yy, self.xx = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32)

    def batch(self):
        label = self.rng.integers(0, GESTURES, BATCH)
        centre = self.rng.uniform(5, 11, (BATCH, 2))
        phase = self.rng.uniform(0, 6.28, BATCH)
        frames, last = [], None
        for t in range(TIME + 1):
            move = np.zeros((BATCH, 2))
            for k, (dy, dx) in enumerate([(0, .6), (0, -.6), (.6, 0), (-.6, 0)]):
                move[label == k] = (dy * (t - TIME / 2), dx * (t - TIME / 2))
            turn = np.where(label == 4, 0.5, np.where(label == 5, -0.5, 0)) * t + phase
            move += np.where(label >= 4, 3.0, 0.0)[:, None] * np.stack([np.sin(turn), np.cos(turn)], 1)
            y, x = (centre + move).T[:, :, None, None]
            image = np.exp(-((self.yy - y) ** 2 + (self.xx - x) ** 2) / 4)
            if last is not None:
                change = image - last + self.rng.normal(0, 0.02, image.shape)
                frames.append(np.stack([change > 0.06, change < -0.06], 1))
            last = image
        return torch.from_numpy(np.stack(frames, 1).astype(np.float32)), torch.from_numpy(label)


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v):
        ctx.save_for_backward(v)
        return (v > 0).float()

    @staticmethod
    def backward(ctx, grad):
        (v,) = ctx.saved_tensors
        return grad / (1 + 5 * v.abs()) ** 2


class LIF(nn.Module):
    """Leaky integrate-and-fire neurons. The firing rate is followed for the homeostasis of the threshold."""

    def __init__(self, decay=0.8, target=0.08):
        super().__init__()
        self.decay, self.target = decay, target
        self.register_buffer("threshold", torch.tensor(1.0))
        self.activity = []
        self.v = None

    def reset(self):
        self.v, self.activity = None, []

    def forward(self, current):
        v = current if self.v is None else self.decay * self.v + current
        s = Spike.apply(v - self.threshold)
        self.v = v - s * self.threshold
        self.activity.append(float(s.mean()))
        return s

    def adapt(self, rate=0.05):
        self.threshold += rate * (sum(self.activity) / len(self.activity) - self.target)


class GestureNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.lif1 = nn.Conv2d(2, 8, 3, stride=2, padding=1), LIF()
        self.conv2, self.lif2 = nn.Conv2d(8, 16, 3, stride=2, padding=1), LIF()
        self.fc, self.lif3 = nn.Linear(256, 96), LIF()
        self.readout = nn.Linear(96, GESTURES)

    def neurons(self):
        return [m for m in self.modules() if isinstance(m, LIF)]

    def forward(self, events):
        for layer in self.neurons():
            layer.reset()
        votes = 0
        for t in range(events.shape[1]):
            x = self.lif1(self.conv1(events[:, t]) * 3)
            x = self.lif2(self.conv2(x) * 3)
            x = self.lif3(self.fc(x.flatten(1)) * 2)
            votes = votes + self.readout(x)
        return votes / events.shape[1]


def main():
    torch.manual_seed(4)
    device = torch_xla.device()
    data = Events(4)
    model = GestureNet().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(EPOCHS):
        loss_sum, right = torch.zeros((), device=device), torch.zeros((), device=device)
        for _ in range(STEPS):
            events, label = data.batch()
            events, label = events.to(device), label.to(device)
            optimizer.zero_grad()
            logits = model(events)
            loss = F.cross_entropy(logits, label)
            loss.backward()
            xm.optimizer_step(optimizer)
            with torch.no_grad():
                for layer in model.neurons():
                    layer.adapt()
                loss_sum += loss.detach()
                right += (logits.argmax(1) == label).float().mean()
            torch_xla.sync()
        thresholds = ", ".join(f"{layer.threshold.item():.2f}" for layer in model.neurons())
        print(f"epoch {epoch}: loss {loss_sum.item() / STEPS:.3f}, accuracy {right.item() / STEPS:.3f}, "
              f"thresholds {thresholds}", flush=True)


if __name__ == "__main__":
    main()
