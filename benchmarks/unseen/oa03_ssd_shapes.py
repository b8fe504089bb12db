"""A single-scale anchor detector for coloured boxes, with hard negative mining."""
import time

import numpy as np
import torch_xla
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla.core.xla_model as xm

IMAGE, GRID, CLASSES, MAX_BOXES = 64, 8, 3, 5
NEG_RATIO = 3


def make_scene(rng):
    img = rng.normal(0, 0.1, (3, IMAGE, IMAGE)).astype(np.float32)
    boxes = np.zeros((MAX_BOXES, 4), np.float32)
    labels = np.full((MAX_BOXES,), -1, np.int64)
    for k in range(rng.integers(1, MAX_BOXES + 1)):
        w, h = rng.integers(8, 24, 2)
        x, y = rng.integers(0, IMAGE - w), rng.integers(0, IMAGE - h)
        c = rng.integers(0, CLASSES)
        img[c, y:y + h, x:x + w] += 1.0
        boxes[k] = np.array([x, y, x + w, y + h]) / IMAGE
        labels[k] = c
    return img, boxes, labels


def batches(n, size, seed):
    rng = np.random.default_rng(seed)
    for _ in range(n):
        imgs, boxes, labels = zip(*(make_scene(rng) for _ in range(size)))
        yield tuple(torch.from_numpy(np.stack(a)) for a in (imgs, boxes, labels))


def make_anchors():
    c = (torch.arange(GRID) + 0.5) / GRID
    cy, cx = torch.meshgrid(c, c, indexing="ij")
    sizes = [(0.2, 0.2), (0.3, 0.2), (0.2, 0.3)]
    a = [torch.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], -1) for w, h in sizes]
    return torch.stack(a, 2).reshape(-1, 4)


def iou(a, b):
    lo = torch.maximum(a[:, :, None, :2], b[:, None, :, :2])
    hi = torch.minimum(a[:, :, None, 2:], b[:, None, :, 2:])
    inter = (hi - lo).clamp(min=0).prod(-1)
    area = lambda z: (z[..., 2] - z[..., 0]) * (z[..., 3] - z[..., 1])
    return inter / (area(a)[:, :, None] + area(b)[:, None, :] - inter + 1e-6)


class Detector(nn.Module):
    def __init__(self, per_cell=3):
        super().__init__()
        ch = [3, 16, 24, 32]
        self.trunk = nn.Sequential(*[m for i in range(3) for m in (nn.Conv2d(ch[i], ch[i + 1], 3, 2, 1), nn.ReLU())])
        self.cls = nn.Conv2d(32, per_cell * (CLASSES + 1), 3, padding=1)
        self.box = nn.Conv2d(32, per_cell * 4, 3, padding=1)

    def forward(self, x):
        f = self.trunk(x)
        cls = self.cls(f).permute(0, 2, 3, 1).reshape(x.shape[0], -1, CLASSES + 1)
        box = self.box(f).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4)
        return cls, box


class MultiBoxLoss(nn.Module):
    def __init__(self, anchors):
        super().__init__()
        self.register_buffer("anchors", anchors)

    def match(self, boxes, labels):
        overlap = iou(self.anchors.expand(boxes.shape[0], -1, -1), boxes)
        overlap = overlap * (labels >= 0)[:, None, :]
        best, which = overlap.max(-1)
        target = torch.gather(labels, 1, which)
        target = torch.where(best > 0.35, target + 1, torch.zeros_like(target))
        return target, torch.gather(boxes, 1, which[..., None].expand(-1, -1, 4))

    def forward(self, cls, box, boxes, labels):
        target, goal = self.match(boxes, labels)
        pos = (target > 0).float()
        ce = F.cross_entropy(cls.transpose(1, 2), target, reduction="none")
        n_pos = int(pos.sum())
        n_neg = min(NEG_RATIO * n_pos + 1, ce.numel())
        hard, _ = (ce.detach() * (1 - pos)).flatten().topk(n_neg)
        keep = pos + (1 - pos) * (ce.detach() >= hard[-1]).float()
        cls_loss = (ce * keep).sum() / keep.sum()
        loc = F.smooth_l1_loss(self.anchors + box, goal, reduction="none").sum(-1)
        return cls_loss + (loc * pos).sum() / pos.sum().clamp(min=1)


def main(steps=16, batch=8):
    torch.manual_seed(0)
    device = torch.device("xla")
    model, criterion = Detector().to(device), MultiBoxLoss(make_anchors()).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
    t0, running = time.time(), torch.zeros((), device=device)
    for step, (img, boxes, labels) in enumerate(batches(steps, batch, 1), 1):
        cls, box = model(img.to(device))
        loss = criterion(cls, box, boxes.to(device), labels.to(device))
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        running += loss.detach()
        xm.mark_step()
        if step % 8 == 0:
            print(f"step {step} loss {running.item() / step:.3f} lr {sched.get_last_lr()[0]:.4f} {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
