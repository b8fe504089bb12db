"""Momentum-contrast pretraining on small synthetic patches, followed by a linear probe."""
import argparse
import random

import torch_xla
import torch_xla.core.xla_model as xm
import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.features = nn.Sequential(
            nn.AvgPool2d(2), nn.Flatten(), nn.Linear(192, 24), nn.ReLU())
        self.head = nn.Linear(24, dim)

    def forward(self, x):
        return F.normalize(self.head(self.features(x)), dim=1)


class MoCo(nn.Module):
    def __init__(self, dim=32, queue_size=256, m=0.99, temperature=0.2):
        super().__init__()
        self.m, self.t, self.size = m, temperature, queue_size
        self.encoder_q, self.encoder_k = Encoder(dim), Encoder(dim)
        self.encoder_k.load_state_dict(self.encoder_q.state_dict())
        for p in self.encoder_k.parameters():
            p.requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(dim, queue_size), dim=0))
        self.register_buffer("queue_ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def update_key_encoder(self):
        for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            k.mul_(self.m).add_(q.detach(), alpha=1 - self.m)

    @torch.no_grad()
    def enqueue(self, keys):
        n = keys.shape[0]
        ptr = int(self.queue_ptr)
        self.queue[:, ptr:ptr + n] = keys.t()
        self.queue_ptr[0] = (ptr + n) % self.size

    def forward(self, im_q, im_k):
        q = self.encoder_q(im_q)
        with torch.no_grad():
            self.update_key_encoder()
            k = self.encoder_k(im_k)
        pos = (q * k).sum(1, keepdim=True)
        neg = q @ self.queue.clone().detach()
        logits = torch.cat([pos, neg], dim=1) / self.t
        target = torch.zeros(logits.shape[0], dtype=torch.long, device=logits.device)
        loss = F.cross_entropy(logits, target)
        self.enqueue(k)
        return loss


class PatchPairs(torch.utils.data.Dataset):
    def __init__(self, n, classes=6, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.proto = torch.randn(classes, 3, 16, 16, generator=g)
        self.label = torch.randint(0, classes, (n,), generator=g)
        self.noise = torch.randn(n, 3, 16, 16, generator=g) * 0.5

    def view(self, i):
        x = self.proto[self.label[i]] + self.noise[i]
        if random.random() < 0.5:
            x = x.flip(-1)
        return x * random.uniform(0.8, 1.2)

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        return self.view(i), self.view(i), self.label[i]


def pretrain(model, loader, epochs, device, log_every):
    opt = torch.optim.SGD(model.encoder_q.parameters(), lr=0.05, momentum=0.9)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, epochs * len(loader))
    step = 0
    for epoch in range(epochs):
        for a, b, _ in loader:
            loss = model(a.to(device), b.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            xm.mark_step()
            step += 1
            if step % log_every == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)


def probe(model, loader, epochs, device):
    clf = nn.Linear(24, 6).to(device)
    opt = torch.optim.Adam(clf.parameters(), lr=1e-2)
    correct = torch.zeros((), device=device)
    for epoch in range(epochs):
        correct.zero_()
        for a, _, y in loader:
            y = y.to(device)
            with torch.no_grad():
                feats = model.encoder_q.features(a.to(device))
            logits = clf(feats)
            opt.zero_grad()
            F.cross_entropy(logits, y).backward()
            opt.step()
            correct += (logits.argmax(1) == y).sum()
            xm.mark_step()
    print(f"probe accuracy {correct.item() / len(loader.dataset):.3f}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=6)
    p.add_argument("--batch-size", type=int, default=32)
    args = p.parse_args()
    torch.manual_seed(0)
    random.seed(0)
    device = xm.xla_device()
    loader = torch.utils.data.DataLoader(PatchPairs(320), args.batch_size, shuffle=True, drop_last=True)
    model = MoCo().to(device)
    pretrain(model, loader, args.epochs, device, log_every=15)
    probe(model, loader, 2, device)


if __name__ == "__main__":
    main()
