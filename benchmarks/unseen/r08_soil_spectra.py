"""Five soil properties and the soil's order from one near-infrared spectrum, with dynamic weights of the tasks."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import torch_xla.core.xla_model as xm

PROPERTIES = ("pH", "clay", "carbon", "nitrogen", "carbonate")
ORDERS = 8
BANDS = 120


def make_soils(n, seed):
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(n, 6))
    wave = np.linspace(0, 1, BANDS)
    centres = rng.uniform(0.1, 0.9, 6) if seed == 0 else np.linspace(0.12, 0.88, 6)
    bumps = np.exp(-((wave[None] - centres[:, None]) / 0.06) ** 2)
    spectra = latent @ bumps + 0.1 * rng.normal(size=(n, BANDS))
    props = latent[:, :5] + 0.3 * np.roll(latent[:, :5], 1, 1) ** 2 + 0.1 * rng.normal(size=(n, 5))
    order = (latent[:, :3] > 0) @ np.array([1, 2, 4])
    as_t = lambda a, t: torch.from_numpy(np.ascontiguousarray(a)).to(t)
    return TensorDataset(as_t(spectra, torch.float32), as_t(props, torch.float32), as_t(order, torch.long))


class SpectraNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(BANDS, width), nn.GELU(), nn.LayerNorm(width),
                                  nn.Linear(width, width), nn.GELU())
        self.props = nn.ModuleDict({p: nn.Linear(width, 1) for p in PROPERTIES})
        self.order = nn.Linear(width, ORDERS)

    def forward(self, x):
        h = self.body(x)
        return {p: head(h)[:, 0] for p, head in self.props.items()}, self.order(h)


class TaskWeights:
    """Dynamic weight averaging: tasks whose loss falls slowly count for more. Weights sum to the number of tasks."""

    def __init__(self, tasks, temperature=0.15, digits=2):
        self.tasks, self.temperature, self.digits = tasks, temperature, digits
        self.weights = {t: 0.9 for t in tasks}
        self.previous = None

    def update(self, losses):
        if self.previous is not None:
            speed = np.array([losses[t] / max(self.previous[t], 1e-6) for t in self.tasks])
            e = np.exp((speed - speed.max()) / self.temperature)
            w = len(self.tasks) * e / e.sum()
            self.weights = {t: max(0.25, round(float(v), self.digits)) for t, v in zip(self.tasks, w)}
        self.previous = losses


class ClassReport:
    """Recall for each order."""

    def __init__(self, n):
        self.hits, self.support = [0] * n, [0] * n

    def add(self, pred, truth):
        for c in range(len(self.hits)):
            mine = truth == c
            self.support[c] += int(mine.sum())
            self.hits[c] += int((mine & (pred == c)).sum())

    def macro_recall(self):
        return float(np.mean([h / s for h, s in zip(self.hits, self.support) if s]))


def train_epoch(model, opt, loader, weights, device):
    sums = {t: torch.zeros((), device=device) for t in (*PROPERTIES, "order")}
    for x, props, order in loader:
        x, props, order = x.to(device), props.to(device), order.to(device)
        preds, logits = model(x)
        losses = {p: F.smooth_l1_loss(preds[p], props[:, i]) for i, p in enumerate(PROPERTIES)}
        losses["order"] = F.cross_entropy(logits, order)
        loss = sum(weights[t] * l for t, l in losses.items())
        opt.zero_grad()
        loss.backward()
        opt.step()
        for t, l in losses.items():
            sums[t] += l.detach()
        xm.mark_step()
    values = torch.stack(list(sums.values())).cpu().tolist()
    return {t: v / len(loader) for t, v in zip(sums, values)}


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    report = ClassReport(ORDERS)
    for x, _, order in loader:
        _, logits = model(x.to(device))
        report.add(logits.argmax(1), order.to(device))
        xm.mark_step()
    model.train()
    return report.macro_recall()


def main():
    torch.manual_seed(0)
    device = xm.xla_device()
    train = DataLoader(make_soils(384, 1), batch_size=32, shuffle=True, drop_last=True)
    valid = DataLoader(make_soils(192, 2), batch_size=64)
    model = SpectraNet().to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    weights = TaskWeights((*PROPERTIES, "order"), digits=1)
    for epoch in range(10):
        losses = train_epoch(model, opt, train, weights.weights, device)
        weights.update(losses)
        recall = evaluate(model, valid, device)
        if epoch % 4 == 1:
            print(f"epoch {epoch:2d}  recall {recall:.3f}  " + "  ".join(f"{t} {v:.3f}" for t, v in losses.items()))


if __name__ == "__main__":
    main()
