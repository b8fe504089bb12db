"""Point-wise classification of lidar sweeps (pole / car / wall) with a small PointNet on an XLA device."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

POINTS, SWEEPS, EPOCHS = 2048, 16, 3
CLASSES = ["pole", "car", "wall"]


def sweep(rng, n=POINTS):
    """n points (x, y, z, intensity) and labels; label -1 is ground."""
    points, labels = np.empty((n, 4), np.float32), np.full(n, -1, np.int64)
    share = rng.uniform(0.35, 0.6)
    ground = int(n * share)
    points[:ground, :2] = rng.uniform(-25, 25, (ground, 2))
    points[:ground, 2] = rng.normal(-1.7, 0.06, ground)
    points[:ground, 3] = rng.uniform(0, 0.3, ground)
    at = ground
    while at < n:
        kind = rng.integers(3)
        m = min(int(rng.integers(20, 90)), n - at)
        x, y = rng.uniform(-20, 20, 2)
        size = [(0.15, 0.15, 4.0), (4.2, 1.8, 1.5), (8.0, 0.2, 3.0)][kind]
        points[at:at + m, 0] = x + rng.uniform(-0.5, 0.5, m) * size[0]
        points[at:at + m, 1] = y + rng.uniform(-0.5, 0.5, m) * size[1]
        points[at:at + m, 2] = -1.5 + rng.uniform(0, 1, m) * size[2]
        points[at:at + m, 3] = np.clip(rng.normal([0.8, 0.5, 0.4][kind], 0.1, m), 0, 1)
        labels[at:at + m] = kind
        at += m
    order = rng.permutation(n)
    return points[order], labels[order]


class GroundFilter:
    """Fit z = a x + b y + c by weighted least squares, then drop what lies on the plane."""

    def __init__(self, threshold=0.18, rounds=3):
        self.threshold, self.rounds = threshold, rounds

    def plane(self, xyz):
        basis = torch.cat([xyz[:, :2] / 25, torch.ones_like(xyz[:, :1])], 1)
        weight = torch.exp(-(xyz[:, 2] + 1.7) ** 2 / 0.5)
        for _ in range(self.rounds):
            wb = basis * weight[:, None]
            normal = wb.T @ basis + 1e-4 * torch.eye(3, device=xyz.device)
            coef = torch.linalg.solve(normal, wb.T @ xyz[:, 2])
            residual = xyz[:, 2] - basis @ coef
            weight = torch.exp(-(residual / 0.3) ** 2)
        return residual

    def __call__(self, points, labels):
        height = self.plane(points[:, :3])
        keep = height > self.threshold
        features = torch.cat([points, height[:, None]], 1)
        return features[keep], labels[keep]


class PointNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.local = nn.Sequential(nn.Linear(5, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.context = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(3 * width, width), nn.ReLU(), nn.Linear(width, len(CLASSES)))

    def forward(self, points):
        local = self.local(points * points.new_tensor([0.05, 0.05, 0.5, 1.0, 0.5]))
        scene = self.context(local).amax(0, keepdim=True).expand(local.shape[0], -1)
        return self.head(torch.cat([local, scene], 1))


class Trainer:
    def __init__(self, device):
        self.device = device
        self.ground = GroundFilter()
        self.model = PointNet().to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)

    def step(self, points, labels):
        points, labels = points.to(self.device), labels.to(self.device)
        objects, target = self.ground(points, labels)
        self.optimizer.zero_grad()
        logits = self.model(objects)
        loss = F.cross_entropy(logits, target, ignore_index=-1, label_smoothing=0.05)
        loss.backward()
        xm.optimizer_step(self.optimizer)
        known = target >= 0
        right = ((logits.argmax(1) == target) & known).sum() / known.sum()
        torch_xla.sync()
        return loss.detach(), right

    def fit(self, sweeps, epochs):
        for epoch in range(epochs):
            log = [self.step(torch.from_numpy(p), torch.from_numpy(l)) for p, l in sweeps]
            loss, right = (torch.stack(column).mean().item() for column in zip(*log))
            print(f"epoch {epoch}: loss {loss:.3f}, point accuracy {right:.3f}", flush=True)


def main():
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    sweeps = [sweep(rng) for _ in range(SWEEPS)]
    Trainer(torch_xla.device()).fit(sweeps, EPOCHS)


if __name__ == "__main__":
    main()
