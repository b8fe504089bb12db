"""MoCo-like contrastive pre-training on toy shapes with a queue of negatives, then a linear probe."""
import copy
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZE, KINDS = 20, 6


def shapes(n, seed):
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(KINDS, (n,), generator=g)
    r = torch.linspace(-1, 1, SIZE)
    yy, xx = r[:, None].expand(SIZE, SIZE), r[None, :].expand(SIZE, SIZE)
    cx, cy = 0.3 * torch.randn(2, n, 1, 1, generator=g)
    x, y = xx - cx, yy - cy
    rad = (x * x + y * y).sqrt()
    all_kinds = torch.stack([rad < 0.5, (rad - 0.5).abs() < 0.15, torch.maximum(x.abs(), y.abs()) < 0.4,
                             torch.minimum(x.abs(), y.abs()) < 0.12, (x + y).abs() < 0.2,
                             ((6 * x).sin() * (6 * y).sin()) > 0.2], 1)
    img = all_kinds[torch.arange(n), kind].float()
    return img[:, None] + 0.15 * torch.randn(n, 1, SIZE, SIZE, generator=g), kind


def augment_one(img):
    """Random rotation, shift, flip, contrast and noise of one image."""
    angle = 0.5 * (torch.rand(()) - 0.5)
    dx, dy = 0.4 * (torch.rand(2) - 0.5)
    flip = 1.0 if torch.rand(()) < 0.5 else -1.0
    theta = torch.stack([torch.stack([flip * angle.cos(), -angle.sin(), dx]),
                         torch.stack([flip * angle.sin(), angle.cos(), dy])])
    grid = F.affine_grid(theta[None], (1, *img.shape), align_corners=False)
    img = F.grid_sample(img[None], grid, align_corners=False)[0]
    return img * (0.6 + 0.8 * torch.rand(())) + 0.2 * torch.randn_like(img)


def augment(batch):
    return torch.stack([augment_one(img) for img in batch])


class Encoder(nn.Module):
    def __init__(self, width=16, out=32):
        super().__init__()
        self.c1 = nn.Conv2d(1, width, 3, stride=2, padding=1)
        self.c2 = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.c3 = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.n = nn.ModuleList(nn.GroupNorm(4, 2 * width) for _ in range(2))
        self.proj = nn.Sequential(nn.Linear(2 * width, 2 * width), nn.ReLU(), nn.Linear(2 * width, out))

    def features(self, x):
        x = F.relu(self.c1(x))
        x = F.relu(self.n[0](self.c2(x)))
        return F.relu(self.n[1](self.c3(x))).mean((2, 3))

    def forward(self, x):
        return F.normalize(self.proj(self.features(x)), dim=-1)


class MoCo(nn.Module):
    def __init__(self, slots=24, tau=0.2):
        super().__init__()
        self.query, self.slots, self.tau = Encoder(), slots, tau
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        self.queue = []                     # key batches of the last steps, oldest first

    @torch.no_grad()
    def follow(self, m=0.98):
        torch._foreach_lerp_(list(self.key.parameters()), list(self.query.parameters()), 1 - m)

    def remember(self, k):
        self.queue.append(k)
        if len(self.queue) > self.slots:
            self.queue.pop(0)

    def forward(self, a, b):
        q = self.query(a)
        with torch.no_grad():
            k = self.key(b)
        logits = q @ torch.cat([k, *self.queue]).T / self.tau
        return F.cross_entropy(logits, torch.arange(len(q))), k


def linear_probe(enc, train, test, steps=150):
    with torch.no_grad():
        fx, ft = enc.features(train[0]), enc.features(test[0])
    mean, std = fx.mean(0), fx.std(0) + 1e-5
    fx, ft = (fx - mean) / std, (ft - mean) / std
    probe = nn.Linear(fx.shape[1], KINDS)
    opt = torch.optim.Adam(probe.parameters(), 0.05)
    for _ in range(steps):
        opt.zero_grad()
        F.cross_entropy(probe(fx), train[1]).backward()
        opt.step()
    return (probe(ft).argmax(-1) == test[1]).float().mean().item()


def pretrain(epochs=5, batch=64):
    torch.manual_seed(0)
    train, test = shapes(1536, 0), shapes(512, 1)
    moco = MoCo()
    print(f"probe on random features: {linear_probe(moco.query, train, test):.3f}", flush=True)
    step = torch.compile(moco, backend="aot_eager")
    opt = torch.optim.SGD(moco.query.parameters(), 0.06, momentum=0.9, weight_decay=1e-4)
    for epoch in range(epochs):
        t0, total = time.time(), torch.zeros(())
        for idx in torch.randperm(len(train[0])).split(batch):
            img = train[0][idx]
            loss, k = step(augment(img), augment(img))
            opt.zero_grad()
            loss.backward()
            opt.step()
            moco.follow()
            moco.remember(k.detach())
            total += loss.detach()
        print(f"epoch {epoch} loss {total.item() / (len(train[0]) // batch):.3f} {time.time() - t0:.1f}s", flush=True)
    print(f"probe after pre-training: {linear_probe(moco.query, train, test):.3f}")


if __name__ == "__main__":
    pretrain()
