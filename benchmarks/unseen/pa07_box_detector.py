"""Single-stage detection of bright boxes; targets are matched to anchors on the device."""
import torch_xla
import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla.core.xla_model as xm

SIZE, STRIDE, MAX_BOXES = 32, 4, 6


class Scenes(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.samples = []
        for _ in range(count):
            n = int(torch.randint(0, MAX_BOXES + 1, (1,), generator=g))
            xy = torch.randint(0, SIZE - 12, (n, 2), generator=g)
            wh = torch.randint(5, 12, (n, 2), generator=g)
            image = 0.2 * torch.rand(1, SIZE, SIZE, generator=g)
            for (x, y), (w, h) in zip(xy.tolist(), wh.tolist()):
                image[:, y:y + h, x:x + w] += 0.8
            self.samples.append((image, torch.cat([xy, xy + wh], 1).float()))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        return self.samples[i]


def collate(items):
    images = torch.stack([image for image, _ in items])
    boxes = torch.zeros(len(items), MAX_BOXES, 4)
    valid = torch.zeros(len(items), MAX_BOXES)
    for i, (_, b) in enumerate(items):
        boxes[i, :len(b)], valid[i, :len(b)] = b, 1.0
    return images, boxes, valid


def anchor_grid():
    centres = torch.tensor(list(itertools.product(range(STRIDE // 2, SIZE, STRIDE), repeat=2))).float().flip(1)
    return torch.cat([centres - 4, centres + 4], 1)


def iou(a, b):
    low, high = torch.maximum(a[:, None, :2], b[None, :, :2]), torch.minimum(a[:, None, 2:], b[None, :, 2:])
    inter = (high - low).clamp(min=0).prod(-1)
    area = lambda t: (t[:, 2:] - t[:, :2]).clamp(min=0).prod(-1)
    return inter / (area(a)[:, None] + area(b)[None] - inter).clamp(min=1e-6)


class Detector(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, width, 4, stride=4), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU())
        self.score, self.box = nn.Conv2d(width, 1, 1), nn.Conv2d(width, 4, 1)

    def forward(self, images):
        h = self.body(images)
        return self.score(h).flatten(1), self.box(h).flatten(2).transpose(1, 2)


class DetectionLoss:
    def __init__(self, anchors, threshold=0.25):
        self.anchors, self.threshold = anchors, threshold

    def __call__(self, scores, offsets, boxes, valid):
        cls, reg = 0.0, 0.0
        for i in range(len(scores)):
            overlap = iou(self.anchors, boxes[i]) * valid[i]
            best, which = overlap.max(1)
            positive = best > self.threshold
            cls = cls + F.binary_cross_entropy_with_logits(scores[i], positive.float())
            if positive.any():
                want = (boxes[i][which] - self.anchors) / STRIDE
                miss = F.smooth_l1_loss(offsets[i], want, reduction="none").sum(-1)
                reg = reg + (miss * positive).sum() / positive.sum()
        return (cls + 0.2 * reg) / len(scores)


@torch.no_grad()
def precision(model, loader, anchors, device):
    good, shown = torch.zeros((), device=device), torch.zeros((), device=device)
    xm.mark_step()
    for images, boxes, valid in loader:
        boxes, valid = boxes.to(device), valid.to(device)
        scores, offsets = model(images.to(device))
        top, idx = scores.sigmoid().topk(4, dim=1)
        for i in range(len(images)):
            found = anchors[idx[i]] + STRIDE * offsets[i][idx[i]]
            hit = (iou(found, boxes[i]) * valid[i]).amax(1) > 0.5
            good += (hit & (top[i] > 0.5)).sum()
            shown += (top[i] > 0.5).sum()
        xm.mark_step()
    return (good / shown.clamp(min=1)).item()


def main(epochs=8, batch=2):
    torch.manual_seed(0)
    device = torch.device("xla")
    loader = torch.utils.data.DataLoader(Scenes(48, 1), batch, shuffle=True, drop_last=True, collate_fn=collate)
    valid_loader = torch.utils.data.DataLoader(Scenes(16, 2), batch, drop_last=True, collate_fn=collate)
    anchors = anchor_grid().to(device)
    model, criterion = Detector().to(device), DetectionLoss(anchors)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(epochs):
        total = torch.zeros((), device=device)
        xm.mark_step()
        for images, boxes, valid in loader:
            opt.zero_grad()
            loss = criterion(*model(images.to(device)), boxes.to(device), valid.to(device))
            loss.backward()
            opt.step()
            total += loss.detach()
            xm.mark_step()
        if epoch % 4 == 3:
            print(f"epoch {epoch}: loss {total.item() / len(loader):.3f} precision {precision(model, valid_loader, anchors, device):.3f}")


if __name__ == "__main__":
    main()
