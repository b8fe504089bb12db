# Set-prediction detector on toy images: find coloured blobs with learned queries and
# Hungarian matching (a very small DETR).  Images come in two sizes, batched by size.
import time

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from torch import nn

torch.manual_seed(0)
rng = np.random.default_rng(0)

CLASSES, QUERIES, WIDTH, MAX_OBJECTS = 3, 8, 48, 4
SIZES = (32, 48)
EPOCHS, BATCHES_PER_SIZE, BATCH = 8, 10, 16


def make_batch(size):
    """Images with 1..4 blobs; targets: list of (classes, boxes as cx, cy, r in 0..1)."""
    images = 0.1 * rng.standard_normal((BATCH, CLASSES, size, size)).astype(np.float32)
    yy, xx = np.mgrid[0:size, 0:size] / size
    targets = []
    for i in range(BATCH):
        count = rng.integers(1, MAX_OBJECTS + 1)
        kinds = rng.integers(0, CLASSES, count)
        boxes = np.stack([rng.uniform(0.15, 0.85, count), rng.uniform(0.15, 0.85, count),
                          rng.uniform(0.06, 0.15, count)], 1).astype(np.float32)
        for kind, (cx, cy, r) in zip(kinds, boxes):
            images[i, kind] += (((xx - cx) ** 2 + (yy - cy) ** 2) < r * r).astype(np.float32)
        targets.append((torch.from_numpy(kinds), torch.from_numpy(boxes)))
    return torch.from_numpy(images), targets


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(CLASSES, 24, 3, stride=2, padding=1), nn.GroupNorm(4, 24), nn.GELU(),
            nn.Conv2d(24, WIDTH, 3, stride=2, padding=1), nn.GroupNorm(4, WIDTH), nn.GELU(),
            nn.Conv2d(WIDTH, WIDTH, 3, padding=1))
        self.where = nn.Linear(2, WIDTH)
        self.queries = nn.Parameter(torch.randn(QUERIES, WIDTH) * 0.5)
        self.attend = nn.ModuleList([nn.MultiheadAttention(WIDTH, 4, batch_first=True) for _ in range(2)])
        self.mix = nn.ModuleList([nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 96), nn.GELU(),
                                                nn.Linear(96, WIDTH)) for _ in range(2)])
        self.kind = nn.Linear(WIDTH, CLASSES + 1)
        self.box = nn.Linear(WIDTH, 3)

    def forward(self, images, grid):
        memory = self.stem(images).flatten(2).transpose(1, 2) + self.where(grid)
        q = self.queries.expand(images.shape[0], -1, -1)
        for attend, mix in zip(self.attend, self.mix):
            q = q + attend(q, memory, memory, need_weights=False)[0]
            q = q + mix(q)
        return self.kind(q), self.box(q).sigmoid()


def grid_of(size):
    side = torch.arange(size // 4) / (size // 4)
    return torch.stack(torch.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)


@torch.no_grad()
def match(logits, boxes, targets):
    """Hungarian matching runs in SciPy: one cost matrix per image, one transfer per batch."""
    prob = logits.softmax(-1)
    kinds = torch.cat([k for k, _ in targets])
    wanted = torch.cat([b for _, b in targets])
    cost = (5 * torch.cdist(boxes.flatten(0, 1), wanted, p=1) - prob.flatten(0, 1)[:, kinds])
    cost = cost.view(len(targets), QUERIES, -1).numpy()
    rows, cols, start = [], [], 0
    for i, (k, _) in enumerate(targets):
        r, c = linear_sum_assignment(cost[i, :, start:start + len(k)])
        rows.append(r + i * QUERIES)
        cols.append(c + start)
        start += len(k)
    return torch.from_numpy(np.concatenate(rows)), torch.from_numpy(np.concatenate(cols)), kinds, wanted


def set_loss(logits, boxes, targets):
    rows, cols, kinds, wanted = match(logits.detach(), boxes.detach(), targets)
    labels = torch.full((logits.shape[0] * QUERIES,), CLASSES)
    labels[rows] = kinds[cols]
    weight = torch.ones(CLASSES + 1)
    weight[CLASSES] = 0.2
    located = (boxes.flatten(0, 1)[rows] - wanted[cols]).abs().mean()
    return F.cross_entropy(logits.flatten(0, 1), labels, weight) + 5 * located, located.detach()


model = Detector()
# two image sizes, two programs: wanted, each is static and fast
detect = torch.compile(model, backend="aot_eager", dynamic=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1.5e-3)
grids = {size: grid_of(size) for size in SIZES}
train = [(size, *make_batch(size)) for size in SIZES for _ in range(BATCHES_PER_SIZE)]
held_out = [(size, *make_batch(size)) for size in SIZES]

for epoch in range(EPOCHS):
    began, losses = time.perf_counter(), []
    model.train()
    for i in rng.permutation(len(train)):
        size, images, targets = train[i]
        loss, _ = set_loss(*detect(images, grids[size]), targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    model.eval()
    with torch.no_grad():
        errors = [set_loss(*detect(images, grids[size]), targets)[1].item() for size, images, targets in held_out]
    print(f"epoch {epoch}: loss {torch.stack(losses).mean():.3f}, box error "
          + ", ".join(f"{s}px {e:.3f}" for s, e in zip(SIZES, errors)) + f"  ({time.perf_counter() - began:.1f} s)")
