"""Single-shot anchor detector on synthetic feature maps, with hard negative mining."""
import torch_xla
import torch_xla.core.xla_model as xm
import torch
from torch import nn
from torch.nn import functional as F

NUM_CLASSES = 4
GRID, ANCHORS_PER_CELL = 6, 2
NUM_ANCHORS = GRID * GRID * ANCHORS_PER_CELL


class TinySSD(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.AvgPool2d(2), nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.ReLU())
        self.cls = nn.Conv2d(32, ANCHORS_PER_CELL * (NUM_CLASSES + 1), 1)
        self.box = nn.Conv2d(32, ANCHORS_PER_CELL * 4, 1)

    def forward(self, images):
        f = self.backbone(images)
        b = f.shape[0]
        cls = self.cls(f).permute(0, 2, 3, 1).reshape(b, NUM_ANCHORS, NUM_CLASSES + 1)
        box = self.box(f).permute(0, 2, 3, 1).reshape(b, NUM_ANCHORS, 4)
        return cls, box


class MultiBoxLoss(nn.Module):
    def __init__(self, neg_ratio=3, box_weight=1.0):
        super().__init__()
        self.neg_ratio = neg_ratio
        self.box_weight = box_weight

    def forward(self, cls, box, labels, targets):
        positive = labels > 0
        n_pos = positive.sum()
        ce = F.cross_entropy(cls.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)
        pos_loss = (ce * positive).sum()
        num_neg = min(int(self.neg_ratio * n_pos), labels.numel() - 1)
        neg_scores = ce.masked_fill(positive, 0.0).flatten()
        neg_loss = neg_scores.topk(num_neg).values.sum()
        reg = F.smooth_l1_loss(box, targets, reduction="none").sum(-1)
        box_loss = (reg * positive).sum()
        denom = n_pos.clamp(min=1)
        return (pos_loss + neg_loss) / denom, self.box_weight * box_loss / denom


class Scenes(torch.utils.data.Dataset):
    def __init__(self, n, seed):
        self.n, self.seed = n, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 100003 + i)
        image = torch.randn(3, 24, 24, generator=g)
        count = int(torch.randint(1, 5, (1,), generator=g))
        where = torch.randperm(NUM_ANCHORS, generator=g)[:count]
        labels = torch.zeros(NUM_ANCHORS, dtype=torch.long)
        labels[where] = torch.randint(1, NUM_CLASSES + 1, (count,), generator=g)
        targets = torch.zeros(NUM_ANCHORS, 4)
        targets[where] = torch.randn(count, 4, generator=g)
        return image, labels, targets


class WarmupLR:
    def __init__(self, optimizer, base, warmup):
        self.optimizer, self.base, self.warmup, self.t = optimizer, base, warmup, 0

    def step(self):
        self.t += 1
        for group in self.optimizer.param_groups:
            group["lr"] = self.base * min(1.0, self.t / self.warmup)


def decode(cls, box, top=5):
    scores, classes = cls.softmax(-1)[..., 1:].max(-1)
    best, idx = scores.topk(top, dim=1)
    return best, classes.gather(1, idx), box.gather(1, idx.unsqueeze(-1).expand(-1, -1, 4))


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    outputs = []
    for images, labels, _ in loader:
        best, classes, _ = decode(*model(images.to(device)))
        xm.mark_step()
        outputs.append((best, classes))
    conf = [best.cpu().mean() for best, _ in outputs]
    model.train()
    return float(torch.stack(conf).mean())


def main():
    torch.manual_seed(1)
    device = xm.xla_device()
    train = torch.utils.data.DataLoader(Scenes(72, 1), batch_size=8, shuffle=True, drop_last=True)
    val = torch.utils.data.DataLoader(Scenes(48, 2), batch_size=8)
    model = TinySSD().to(device)
    criterion = MultiBoxLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    warmup = WarmupLR(optimizer, 0.01, 20)
    for epoch in range(2):
        running = torch.zeros(2, device=device)
        for images, labels, targets in train:
            images, labels, targets = images.to(device), labels.to(device), targets.to(device)
            cls, box = model(images)
            cls_loss, box_loss = criterion(cls, box, labels, targets)
            optimizer.zero_grad()
            (cls_loss + box_loss).backward()
            warmup.step()
            optimizer.step()
            running += torch.stack([cls_loss.detach(), box_loss.detach()])
            xm.mark_step()
        c, b = (running / len(train)).tolist()
        print(f"epoch {epoch}: cls {c:.3f} box {b:.3f} mean confidence {evaluate(model, val, device):.3f}", flush=True)


if __name__ == "__main__":
    main()
