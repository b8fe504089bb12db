"""One-stage detector on synthetic squares; hard negatives are mined per batch."""
import torch_xla
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader, IterableDataset

SIZE, GRID = 32, 8
CELL = SIZE // GRID


class Squares(IterableDataset):
    def __init__(self, images, max_objects=3, seed=0):
        self.images, self.max_objects, self.seed = images, max_objects, seed

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed)
        for _ in range(self.images):
            img = torch.randn(1, SIZE, SIZE, generator=g) * 0.2
            cls = torch.zeros(GRID, GRID, dtype=torch.long)
            box = torch.zeros(4, GRID, GRID)
            for _ in range(int(torch.randint(1, self.max_objects + 1, (1,), generator=g))):
                cx, cy = torch.randint(3, SIZE - 3, (2,), generator=g).tolist()
                r = int(torch.randint(1, 4, (1,), generator=g))
                img[0, cy - r:cy + r, cx - r:cx + r] += 1.0
                gy, gx = cy // CELL, cx // CELL
                cls[gy, gx] = 1
                box[:, gy, gx] = torch.tensor([cx % CELL, cy % CELL, r, r]) / CELL
            yield img, cls, box


class Detector(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU())
        self.cls = nn.Conv2d(width, 2, 1)
        self.box = nn.Conv2d(width, 4, 1)

    def forward(self, x):
        h = self.body(x)
        return self.cls(h), self.box(h)


class MultiboxLoss(nn.Module):
    def __init__(self, ratio=3, box_weight=2.0):
        super().__init__()
        self.ratio, self.box_weight = ratio, box_weight

    def forward(self, logits, boxes, cls, target):
        ce = F.cross_entropy(logits, cls, reduction="none").flatten()
        pos = (cls > 0).flatten()
        num_pos = pos.sum()
        background = torch.where(pos, torch.zeros_like(ce), ce)
        hard = background.topk(int(self.ratio * num_pos)).values
        cls_loss = ((ce * pos).sum() + hard.sum()) / num_pos
        l1 = F.smooth_l1_loss(boxes, target, reduction="none").sum(1).flatten()
        return cls_loss + self.box_weight * (l1 * pos).sum() / num_pos


class Trainer:
    def __init__(self, device):
        self.device = device
        self.model = Detector().to(device)
        self.criterion = MultiboxLoss()
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)

    def fit(self, loader):
        running = torch.zeros((), device=self.device)
        for it, batch in enumerate(loader, 1):
            img, cls, box = (t.to(self.device) for t in batch)
            logits, pred = self.model(img)
            loss = self.criterion(logits, pred, cls, box)
            self.opt.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.opt.step()
            running += loss.detach()
            xm.mark_step()
            if it % 8 == 0:
                print(f"iter {it} loss {running.item() / 8:.3f}")
                running = torch.zeros((), device=self.device)


def main():
    torch.manual_seed(0)
    trainer = Trainer(xm.xla_device())
    loader = DataLoader(Squares(4 * 16), batch_size=4)
    trainer.fit(loader)


if __name__ == "__main__":
    main()
