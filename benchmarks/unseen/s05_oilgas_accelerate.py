"""Fault diagnosis of power transformers from gases dissolved in their oil, with accelerate and torchmetrics."""
import math
import time

import torch
import torch_xla
import torch_xla.core.xla_model as xm
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

GASES = ["H2", "CH4", "C2H6", "C2H4", "C2H2", "CO", "CO2"]
FAULTS = {
    "partial discharge": [900, 60, 20, 5, 1, 200, 2500],
    "thermal < 300": [80, 250, 180, 60, 1, 500, 6000],
    "thermal > 700": [200, 500, 140, 900, 8, 400, 5000],
    "low energy arc": [350, 90, 20, 80, 150, 250, 3000],
    "healthy": [25, 15, 12, 10, 0.5, 300, 2800],
}


def sample_oil(n, seed):
    g = torch.Generator().manual_seed(seed)
    centres = torch.tensor(list(FAULTS.values()), dtype=torch.float32).log1p()
    label = torch.randint(len(FAULTS), (n,), generator=g)
    load = torch.rand(n, 1, generator=g)
    gases = centres[label] + 0.8 * torch.randn(n, len(GASES), generator=g) + 0.3 * load
    ratios = torch.stack([gases[:, 1] - gases[:, 0], gases[:, 4] - gases[:, 3], gases[:, 3] - gases[:, 2]], dim=1)
    return TensorDataset(torch.cat([gases, ratios, load], dim=1), label)


class GasNet(nn.Module):
    def __init__(self, width=48, depth=1):
        super().__init__()
        self.entry = nn.Linear(len(GASES) + 4, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.1),
                          nn.Linear(2 * width, width)) for _ in range(depth))
        self.exit = nn.Linear(width, len(FAULTS))

    def forward(self, x):
        h = self.entry(x)
        for layer in self.layers:
            h = h + layer(h)
        return self.exit(h)


class LossCurve:
    """All losses of the run, left on the device until somebody asks."""

    def __init__(self):
        self.values = []

    def add(self, loss):
        self.values.append(loss)

    def mean(self, last=0):
        return torch.stack(self.values[-last:]).mean().item()


def build_metrics(device):
    n = len(FAULTS)
    return MetricCollection({
        "acc": MulticlassAccuracy(n, average="micro"),
        "f1": MulticlassF1Score(n),
    }).to(device)


def train_epoch(accelerator, model, optimizer, schedule, loader, metrics, curve):
    model.train()
    for step, (x, y) in enumerate(loader):
        with accelerator.accumulate(model):
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, y, label_smoothing=0.05)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        probs = logits.detach().softmax(dim=-1)
        metrics.update(probs, y)
        curve.add(loss.detach())
        if (step + 1) % 3 == 0:
            print(f"    step {step + 1:3d}  loss so far {curve.mean():.3f}, lately {curve.mean(6):.3f}")
    return curve.mean(len(loader))


@torch.no_grad()
def evaluate(accelerator, model, loader):
    model.eval()
    hits = torch.zeros(len(FAULTS), device=accelerator.device)
    seen = torch.zeros_like(hits)
    for x, y in loader:
        target = nn.functional.one_hot(y, len(FAULTS)).float()
        right = (model(x).argmax(dim=-1) == y).float().unsqueeze(1)
        hits += (target * right).sum(dim=0)
        seen += target.sum(dim=0)
    return (hits / seen.clamp_min(1)).cpu()


def main():
    set_seed(31)
    accelerator = Accelerator(gradient_accumulation_steps=2)
    print(f"device {accelerator.device}, {accelerator.num_processes} process")
    train = DataLoader(sample_oil(768, 1), batch_size=32, shuffle=True, drop_last=True)
    val = DataLoader(sample_oil(1024, 2), batch_size=128, drop_last=True)
    model = GasNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)
    epochs = 2
    total = epochs * len(train)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min(1.0, (s + 5) / 25) * (0.55 + 0.4 * math.cos(math.pi * min(1.0, s / total))))
    model, optimizer, train, val, schedule = accelerator.prepare(model, optimizer, train, val, schedule)
    metrics = build_metrics(accelerator.device)
    curve = LossCurve()

    for epoch in range(epochs):
        began = time.time()
        metrics.reset()
        loss = train_epoch(accelerator, model, optimizer, schedule, train, metrics, curve)
        shown = {k: round(v.item(), 3) for k, v in metrics.compute().items()}
        print(f"epoch {epoch}: loss {loss:.3f} {shown} ({time.time() - began:.1f} s)")
        recall = evaluate(accelerator, model, val)
        print("   recall " + ", ".join(f"{n} {r:.2f}" for n, r in zip(FAULTS, recall.tolist())))
    xm.wait_device_ops()


if __name__ == "__main__":
    main()
