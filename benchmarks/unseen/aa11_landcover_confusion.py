"""Land-cover classification of pixel spectra; validation keeps a confusion matrix and per-class IoU."""
import torch_xla
import torch_xla.core.xla_model as xm
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES = ["water", "forest", "crop", "urban", "bare"]
BANDS = 10


def make_split(n, seed):
    centers = torch.randn(len(CLASSES), BANDS, generator=torch.Generator().manual_seed(0))
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, len(CLASSES), (n,), generator=g)
    return TensorDataset(centers[y] + 0.9 * torch.randn(n, BANDS, generator=g), y)


class ConfusionMatrix:
    def __init__(self, k, device):
        self.counts = torch.zeros(k, k, device=device)

    def update(self, predicted, target):
        for p, t in zip(predicted, target):
            self.counts[t, p] += 1

    def iou(self):
        c = self.counts.cpu()
        hit = c.diagonal()
        return hit / (c.sum(0) + c.sum(1) - hit).clamp(min=1)

    def accuracy(self):
        c = self.counts.cpu()
        return float(c.diagonal().sum() / c.sum())


class SpectraNet(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(BANDS, width), nn.BatchNorm1d(width), nn.ReLU())
        self.block = nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU())
        self.out = nn.Linear(width, len(CLASSES))

    def forward(self, x):
        h = self.stem(x)
        return self.out(h + self.block(h))


class EarlyStop:
    def __init__(self, patience):
        self.best, self.left, self.patience = -1.0, patience, patience

    def __call__(self, value):
        if value > self.best:
            self.best, self.left = value, self.patience
        else:
            self.left -= 1
        return self.left < 0


def train_epoch(model, loader, optimizer, criterion, device):
    model.train()
    total = torch.zeros((), device=device)
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.detach()
        xm.mark_step()
    return total.item() / len(loader)


@torch.no_grad()
def validate(model, loader, device):
    model.eval()
    cm = ConfusionMatrix(len(CLASSES), device)
    for x, y in loader:
        pred = model(x.to(device)).argmax(1)
        cm.update(pred, y.to(device))
        xm.mark_step()
    return cm


def main():
    torch.manual_seed(0)
    device = xm.xla_device()
    train = DataLoader(make_split(1280, 1), batch_size=32, shuffle=True, drop_last=True)
    val = DataLoader(make_split(48, 2), batch_size=24)
    model = SpectraNet().to(device)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 1.0, 1.2, 1.5, 1.1]).to(device))
    stop = EarlyStop(patience=3)
    for epoch in range(3):
        loss = train_epoch(model, train, optimizer, criterion, device)
        cm = validate(model, val, device)
        acc = cm.accuracy()
        iou = ", ".join(f"{n} {v:.2f}" for n, v in zip(CLASSES, cm.iou().tolist()))
        print(f"epoch {epoch} loss {loss:.3f} val {acc:.3f} iou {iou}", flush=True)
        if stop(acc):
            break


if __name__ == "__main__":
    main()
