"""Segmentation of synthetic cells, mean IoU on a validation set every epoch."""
import torch_xla
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 4


def make_cells(n, seed, size=24):
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    images, masks = [], []
    for _ in range(n):
        mask = torch.zeros(size, size, dtype=torch.long)
        for c in range(1, CLASSES):
            cy, cx = (torch.rand(2, generator=g) * size).tolist()
            r = 3 + 3 * torch.rand(1, generator=g).item()
            mask[(yy - cy) ** 2 + (xx - cx) ** 2 < r * r] = c
        images.append(mask.float()[None] / CLASSES + 0.3 * torch.randn(1, size, size, generator=g))
        masks.append(mask)
    return TensorDataset(torch.stack(images), torch.stack(masks))


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(4, o), nn.ReLU())


class TinyUNet(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.d1, self.d2 = block(1, w), block(w, 2 * w)
        self.mid = block(2 * w, 2 * w)
        self.up = block(3 * w, w)
        self.head = nn.Conv2d(w, CLASSES, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.mid(self.d2(F.max_pool2d(a, 2)))
        b = F.interpolate(b, scale_factor=2, mode="nearest")
        return self.head(self.up(torch.cat([a, b], 1)))


class ConfusionMatrix:
    def __init__(self, device):
        self.table = torch.zeros(CLASSES, CLASSES, device=device)

    def update(self, pred, target):
        p = F.one_hot(pred.flatten(), CLASSES).float()
        t = F.one_hot(target.flatten(), CLASSES).float()
        self.table += t.T @ p

    def mean_iou(self):
        table = self.table.cpu()
        inter = table.diag()
        union = table.sum(0) + table.sum(1) - inter
        return (inter / union.clamp_min(1)).mean().item()


@torch.no_grad()
def validate(model, loader, device):
    model.eval()
    matrix = ConfusionMatrix(device)
    for image, mask in loader:
        logits = model(image.to(device))
        matrix.update(logits.argmax(1), mask.to(device))
    model.train()
    return matrix.mean_iou()


def train_epoch(model, loader, opt, device):
    total = torch.zeros((), device=device)
    for image, mask in loader:
        image, mask = image.to(device), mask.to(device)
        loss = F.cross_entropy(model(image), mask)
        opt.zero_grad()
        loss.backward()
        xm.optimizer_step(opt, barrier=True)
        total += loss.detach()
    return total.item() / len(loader)


def main():
    torch.manual_seed(0)
    device = xm.xla_device()
    train = DataLoader(make_cells(96, 0), batch_size=8, shuffle=True)
    valid = DataLoader(make_cells(96, 1), batch_size=8)
    model = TinyUNet().to(device)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    sched = torch.optim.lr_scheduler.StepLR(opt, step_size=2, gamma=0.5)
    best = 0.0
    for epoch in range(2):
        loss = train_epoch(model, train, opt, device)
        miou = validate(model, valid, device)
        sched.step()
        if miou > best:
            best = miou
            xm.save(model.state_dict(), "/tmp/ca06_best.pt")
        print(f"epoch {epoch} loss {loss:.4f} mIoU {miou:.4f}", flush=True)


if __name__ == "__main__":
    main()
