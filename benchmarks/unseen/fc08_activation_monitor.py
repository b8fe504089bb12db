"""Spectrogram tagger with an activation monitor: forward hooks watch for dead or exploding channels."""
from collections import defaultdict

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

TAGS, MELS, FRAMES = 5, 32, 48


class Clips:
    """Synthetic mel spectrograms; each tag adds its own pattern."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.tags = (rng.random((n, TAGS)) < 0.35).astype(np.float32)
        f = np.arange(MELS)[:, None]
        t = np.arange(FRAMES)[None]
        patterns = np.stack([
            np.exp(-((f - 5) ** 2) / 8.0) * np.ones_like(t),
            np.exp(-((f - 2 - t * 0.5) ** 2) / 6.0),
            np.exp(-((f - 28 + t * 0.5) ** 2) / 6.0),
            (t % 12 < 2) * np.ones_like(f),
            np.exp(-((f - 20) ** 2) / 8.0) * (0.5 + 0.5 * np.sin(t * 1.3)),
        ]).astype(np.float32)
        gain = rng.uniform(0.4, 1.2, (n, TAGS)).astype(np.float32)
        self.mel = np.einsum("nk,kft->nft", self.tags * gain, patterns)
        self.mel += rng.normal(0, 0.45, self.mel.shape).astype(np.float32)

    def batches(self, size, rng=None):
        order = np.arange(len(self.tags)) if rng is None else rng.permutation(len(self.tags))
        for i in range(0, len(order), size):
            pick = order[i:i + size]
            x = self.mel[pick]
            if rng is not None:
                x = spec_mask(x, rng)
            yield torch.from_numpy(x[:, None]), torch.from_numpy(self.tags[pick])


def spec_mask(x, rng, width=6):
    """One frequency stripe and one time stripe per batch are silenced."""
    x = x.copy()
    f, t = rng.integers(0, MELS - width), rng.integers(0, FRAMES - width)
    x[:, f:f + width] = 0
    x[:, :, t:t + width] = 0
    return x


class Monitor:
    def __init__(self, model):
        self.peak = defaultdict(float)
        self.dead = defaultdict(float)
        self.calls = 0
        for name, module in model.named_modules():
            if isinstance(module, (nn.Conv2d, nn.Hardswish)):
                module.register_forward_hook(self.make(name))

    def make(self, name):
        def hook(module, args, out):
            peak = out.detach().abs().max().item()
            if peak > self.peak[name]:
                self.peak[name] = peak
            share = (out.detach().amax((0, 2, 3)) <= 0).float().mean().item()
            self.dead[name] = 0.9 * self.dead[name] + 0.1 * share
        return hook

    def report(self):
        worst = max(self.peak, key=self.peak.get)
        print(f"  largest activation {self.peak[worst]:.2f} at {worst}; dead share {max(self.dead.values()):.3f}")
        self.peak.clear()


def conv(i, o, stride):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.Hardswish())


class Tagger(nn.Module):
    def __init__(self, c=12):
        super().__init__()
        self.stages = nn.Sequential(conv(1, c, 2), conv(c, c, 1), conv(c, 2 * c, 2), conv(2 * c, 2 * c, 1))
        self.head = nn.Linear(4 * c, TAGS)

    def forward(self, x):
        h = self.stages(x)
        return self.head(torch.cat([h.mean((2, 3)), h.amax((2, 3))], 1))


def average_precision(score, target):
    order = np.argsort(-score)
    hit = target[order]
    return float((np.cumsum(hit) / (np.arange(len(hit)) + 1) * hit).sum() / max(hit.sum(), 1))


def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(7)
    train, test = Clips(1200, 1), Clips(300, 2)
    model = Tagger()
    monitor = Monitor(model)
    net = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.08, momentum=0.9, nesterov=True)
    for epoch in range(4):
        model.train()
        losses = []
        for x, y in train.batches(40, rng):
            loss = F.binary_cross_entropy_with_logits(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        model.eval()
        with torch.inference_mode():
            scores = torch.cat([model(x) for x, _ in test.batches(100)]).numpy()
        m = np.mean([average_precision(scores[:, k], test.tags[:, k]) for k in range(TAGS)])
        print(f"epoch {epoch}  loss {torch.stack(losses).mean().item():.4f}  mAP {m:.3f}")
        monitor.report()


if __name__ == "__main__":
    main()
