"""One-stage box detector for shelf photos (grid of cells, one box per cell), with hard assignment of boxes to cells."""
import random
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

GRID, SIZE, MAX_BOXES = 6, 48, 5


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 48, 8, 8)
        self.m1 = nn.Linear(GRID * GRID, GRID * GRID)
        self.m2 = nn.Linear(48, 48)
        self.head = nn.Linear(48, 5)

    def forward(self, x):
        h = F.gelu(self.patch(x)).flatten(2)
        h = h + F.gelu(self.m1(h))
        h = h.transpose(1, 2)
        h = h + F.gelu(self.m2(h))
        out = self.head(h)
        return out[..., 0], out[..., 1:].sigmoid()


class Matcher:
    def __init__(self, device, min_iou=0.02):
        c = (torch.arange(GRID) + 0.5) / GRID
        cy, cx = torch.meshgrid(c, c, indexing="ij")
        w = torch.full_like(cx, 1.3 / GRID)
        self.cells = torch.stack([cx, cy, w, w], -1).view(-1, 4).to(device)
        self.min_iou = min_iou

    @staticmethod
    def corners(b):
        return torch.cat([b[..., :2] - b[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2], -1)

    def iou(self, boxes):
        a, b = self.corners(boxes)[:, :, None], self.corners(self.cells)[None, None]
        inter = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0).prod(-1)
        return inter / (boxes[..., 2:].prod(-1)[:, :, None] + self.cells[:, 2:].prod(-1) - inter + 1e-6)

    def reliable(self, overlap, present):
        """Photos whose labels do not fit the grid at all are left out."""
        weakest = torch.where(present, overlap.amax(-1), torch.ones_like(present, dtype=torch.float)).amin(1)
        return [1.0 if w > self.min_iou else 0.0 for w in weakest]

    def __call__(self, boxes, present):
        overlap = self.iou(boxes)
        keep = torch.tensor(self.reliable(overlap, present)).to(boxes.device)
        cell = overlap.argmax(-1)
        onehot = F.one_hot(cell, GRID * GRID).float() * present[..., None]
        objness = onehot.amax(1)
        target = (onehot[..., None] * boxes[:, :, None]).sum(1) / onehot.sum(1).clamp(min=1)[..., None]
        return objness, target, keep


class ShelfPhotos(torch.utils.data.IterableDataset):
    def __init__(self, seed):
        self.rnd = random.Random(seed)

    def __iter__(self):
        while True:
            img = torch.randn(3, SIZE, SIZE) * 0.1
            boxes = torch.full((MAX_BOXES, 4), 0.5)
            k = self.rnd.randint(1, MAX_BOXES)
            for i in range(k):
                w, h = self.rnd.uniform(0.1, 0.3), self.rnd.uniform(0.1, 0.3)
                cx, cy = self.rnd.uniform(0.2, 0.8), self.rnd.uniform(0.2, 0.8)
                boxes[i] = torch.tensor([cx, cy, w, h])
                x0, y0 = int((cx - w / 2) * SIZE), int((cy - h / 2) * SIZE)
                img[i % 3, y0:y0 + int(h * SIZE), x0:x0 + int(w * SIZE)] += 1
            present = torch.arange(MAX_BOXES) < k
            yield img, boxes, present


def loss_fn(logit, box, matched):
    objness, target, keep = matched
    obj = F.binary_cross_entropy_with_logits(logit, objness, reduction="none").mean(1)
    reg = ((box - target).abs().sum(-1) * objness).sum(1) / objness.sum(1).clamp(min=1)
    return ((obj + 2 * reg) * keep).mean()


def train(steps=120):
    torch.manual_seed(0)
    dev = torch_xla.device()
    net, match = Backbone().to(dev), Matcher(dev)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    loader = torch.utils.data.DataLoader(ShelfPhotos(0), batch_size=16)
    for i, (img, boxes, present) in enumerate(loader, 1):
        img, boxes, present = img.to(dev), boxes.to(dev), present.to(dev)
        matched = match(boxes, present)
        loss = loss_fn(*net(img), matched)
        opt.zero_grad()
        loss.backward()
        opt.step()
        torch_xla.sync()
        if i % 60 == 0:
            print(f"iter {i} loss {loss.item():.4f}")
        if i == steps:
            break


if __name__ == "__main__":
    train()
