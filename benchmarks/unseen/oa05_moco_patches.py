"""Momentum contrast on texture patches: two encoders and a queue of negatives."""
import copy
import time

import numpy as np
import torch_xla
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla.core.xla_model as xm


def textures(n, size, seed):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:size, 0:size] / size
    for _ in range(n):
        f, o = rng.uniform(2, 9), rng.uniform(0, np.pi)
        wave = np.sin(2 * np.pi * f * (xx * np.cos(o) + yy * np.sin(o)))
        yield (wave[None] * rng.uniform(0.5, 1.5, (3, 1, 1))).astype(np.float32)


class Patches(torch.utils.data.Dataset):
    def __init__(self, n, size=24, crop=16, seed=0):
        self.data = list(textures(n, size, seed))
        self.size, self.crop = size, crop
        self.rng = np.random.default_rng(seed + 1)

    def __len__(self):
        return len(self.data)

    def view(self, img):
        y, x = self.rng.integers(0, self.size - self.crop + 1, 2)
        v = img[:, y:y + self.crop, x:x + self.crop]
        if self.rng.random() < 0.5:
            v = v[:, :, ::-1]
        return torch.from_numpy(np.ascontiguousarray(v + self.rng.normal(0, 0.1, v.shape).astype(np.float32)))

    def __getitem__(self, i):
        return self.view(self.data[i]), self.view(self.data[i])


def encoder(dim):
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(),
        nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 16, 64), nn.ReLU(), nn.Linear(64, dim),
    )


class MoCo(nn.Module):
    def __init__(self, dim=32, queue=384, momentum=0.99, temperature=0.1):
        super().__init__()
        self.queue_size, self.m, self.t = queue, momentum, temperature
        self.q_enc = encoder(dim)
        self.k_enc = copy.deepcopy(self.q_enc).requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(dim, queue), dim=0))
        self.ptr = 0

    @torch.no_grad()
    def update_key_encoder(self):
        for pq, pk in zip(self.q_enc.parameters(), self.k_enc.parameters()):
            pk.mul_(self.m).add_(pq, alpha=1 - self.m)

    @torch.no_grad()
    def enqueue(self, keys):
        n = keys.shape[0]
        self.queue[:, self.ptr:self.ptr + n] = keys.T
        self.ptr = (self.ptr + n) % self.queue_size

    def forward(self, a, b):
        q = F.normalize(self.q_enc(a), dim=1)
        with torch.no_grad():
            self.update_key_encoder()
            k = F.normalize(self.k_enc(b), dim=1)
        pos = (q * k).sum(1, keepdim=True)
        neg = q @ self.queue.clone().detach()
        logits = torch.cat([pos, neg], 1) / self.t
        self.enqueue(k)
        return F.cross_entropy(logits, torch.zeros(q.shape[0], dtype=torch.long, device=q.device))


def train(epochs=3, batch=32, warmup=20):
    torch.manual_seed(0)
    device = torch.device("xla")
    data = torch.utils.data.DataLoader(Patches(384), batch_size=batch, shuffle=True, drop_last=True)
    model = MoCo().to(device)
    opt = torch.optim.SGD(model.q_enc.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / warmup))
    for epoch in range(epochs):
        t0 = time.time()
        total = torch.zeros((), device=device)
        for a, b in data:
            loss = model(a.to(device), b.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            total += loss.detach()
            xm.mark_step()
        print(f"epoch {epoch} loss {total.item() / len(data):.3f} lr {sched.get_last_lr()[0]:.3f} {time.time() - t0:.1f}s", flush=True)
    xm.save(model.q_enc.state_dict(), "/tmp/moco_encoder.pt")


if __name__ == "__main__":
    train()
