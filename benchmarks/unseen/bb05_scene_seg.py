import math
import random
import time
from collections import defaultdict

import torch_xla
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader, Dataset

IGNORE = 255


class StreetScenes(Dataset):
    """Synthetic street scenes: coloured rectangles with a void border."""

    def __init__(self, n, size=24, classes=6, seed=0):
        self.n, self.size, self.classes, self.seed = n, size, classes, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = random.Random(self.seed * 100003 + i)
        g = torch.Generator().manual_seed(self.seed * 7919 + i)
        s = self.size
        mask = torch.zeros(s, s, dtype=torch.long)
        for c in range(1, self.classes):
            y, x = rng.randrange(s - 8), rng.randrange(s - 8)
            mask[y:y + rng.randrange(4, 16), x:x + rng.randrange(4, 16)] = c
        img = torch.stack([(mask * k % 5).float() / 5 for k in (1, 2, 3)])
        img = img + 0.1 * torch.randn(3, s, s, generator=g)
        void = rng.randrange(1, 3)
        mask[:void] = IGNORE
        return img, mask


class Block(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(4, cout)

    def forward(self, x):
        return F.silu(self.norm(self.conv(x)))


class MiniUNet(nn.Module):
    def __init__(self, classes, width=12):
        super().__init__()
        self.d1, self.d2 = Block(3, width), Block(width, width * 2)
        self.mid = Block(width * 2, width * 2)
        self.up = Block(width * 3, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        b = self.mid(b)
        b = F.interpolate(b, scale_factor=2, mode="nearest")
        return self.head(self.up(torch.cat([a, b], 1)))


class OhemCrossEntropy(nn.Module):
    """Online hard example mining: keeps the hardest quarter of labelled pixels."""

    def __init__(self, keep=0.25):
        super().__init__()
        self.keep = keep

    def forward(self, logits, target):
        loss = F.cross_entropy(logits, target, ignore_index=IGNORE, reduction="none").flatten()
        labelled = loss[target.flatten() != IGNORE]
        k = max(1, int(self.keep * labelled.numel()))
        hardest, _ = torch.topk(labelled, k)
        return hardest.mean()


class ConfusionMeter:
    def __init__(self, classes, device):
        self.classes = classes
        self.matrix = torch.zeros(classes, classes, device=device)

    def update(self, logits, target):
        pred = F.one_hot(logits.argmax(1), self.classes).flatten(0, 2).float()
        valid = (target != IGNORE).flatten().unsqueeze(1)
        true = F.one_hot(target.clamp(max=self.classes - 1), self.classes).flatten(0, 2).float() * valid
        self.matrix += true.t() @ pred

    def miou(self):
        m = self.matrix.cpu()
        inter = m.diag()
        union = m.sum(0) + m.sum(1) - inter
        return (inter / union.clamp(min=1)).mean().item()


def evaluate(model, loader, classes, device):
    model.eval()
    meter = ConfusionMeter(classes, device)
    with torch.no_grad():
        for img, mask in loader:
            meter.update(model(img.to(device)), mask.to(device))
            xm.mark_step()
    model.train()
    return meter.miou()


def main():
    torch.manual_seed(0)
    device = torch.device("xla")
    classes, epochs = 6, 2
    train = DataLoader(StreetScenes(96), batch_size=8, shuffle=True, drop_last=True,
                       generator=torch.Generator().manual_seed(1))
    val = DataLoader(StreetScenes(32, seed=9), batch_size=8)
    model = MiniUNet(classes).to(device)
    criterion = OhemCrossEntropy()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: 0.5 * (1 + math.cos(math.pi * s / (epochs * len(train)))))
    history = defaultdict(list)
    step = 0
    for epoch in range(epochs):
        began = time.time()
        for img, mask in train:
            img, mask = img.to(device), mask.to(device)
            loss = criterion(model(img), mask)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            xm.mark_step()
            step += 1
            if step % 12 == 0:
                history["loss"].append(loss.item())
        history["miou"].append(evaluate(model, val, classes, device))
        print(f"epoch {epoch} loss {history['loss'][-1]:.3f} miou {history['miou'][-1]:.3f} {time.time() - began:.1f}s")


if __name__ == "__main__":
    main()
