"""Momentum-contrast embeddings of postmarks: which cancellations were struck by the same hammer?"""

import argparse
import collections
import copy
import logging
import math
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

import torch_xla
import torch_xla.core.xla_model as xm

log = logging.getLogger("postmark")


class PostmarkDataset(Dataset):
    """Rings with a date bridge; every hammer has its own radius, gap and wear."""

    def __init__(self, count=960, hammers=24, size=16, seed=4):
        generator = torch.Generator().manual_seed(seed)
        rows, columns = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")
        distance = (rows**2 + columns**2).sqrt()
        self.hammer = torch.randint(0, hammers, (count,), generator=generator)
        radius = torch.linspace(0.4, 0.9, hammers)[self.hammer]
        bridge = torch.linspace(-0.3, 0.3, hammers).roll(7)[self.hammer]
        ring = torch.exp(-((distance[None] - radius[:, None, None]) ** 2) * 90)
        bar = torch.exp(-((rows[None] - bridge[:, None, None]) ** 2) * 60) * (distance[None] < radius[:, None, None])
        self.images = (ring + 0.6 * bar)[:, None].clamp(0, 1)

    def __len__(self):
        return len(self.images)

    @staticmethod
    def impression(image):
        ink = 0.6 + 0.4 * torch.rand(1)
        return image * ink + 0.12 * torch.randn_like(image)

    def __getitem__(self, index):
        image = self.images[index]
        return self.impression(image), self.impression(image), self.hammer[index]


class Encoder(nn.Module):
    def __init__(self, pixels=256, width=160, embedding=24):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(pixels, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.head = nn.Linear(width, embedding)

    def forward(self, images):
        return F.normalize(self.head(self.body(images.flatten(1))), dim=-1)


class MomentumContrast(nn.Module):
    def __init__(self, queue_batches=7, momentum=0.98, temperature=0.15):
        super().__init__()
        self.query = Encoder()
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        self.momentum = momentum
        self.temperature = temperature
        self.queue = collections.deque(maxlen=queue_batches)

    @torch.no_grad()
    def follow(self):
        for slow, fast in zip(self.key.parameters(), self.query.parameters()):
            slow.mul_(self.momentum).add_(fast, alpha=1 - self.momentum)

    def forward(self, first, second):
        queries = self.query(first)
        with torch.no_grad():
            keys = self.key(second)
        logits = queries @ keys.t()
        if self.queue:
            negatives = torch.cat(list(self.queue))
            logits = torch.cat([logits, queries @ negatives.t()], dim=1)
        targets = torch.arange(len(queries), device=queries.device)
        loss = F.cross_entropy(logits / self.temperature, targets)
        self.queue.append(keys)
        return loss


def cosine(step, total, peak):
    return peak * 0.5 * (1 + math.cos(math.pi * step / total)) + 1e-4


def train(model, loader, device, epochs):
    optimizer = torch.optim.SGD(model.query.parameters(), lr=0.05, momentum=0.9)
    total = epochs * len(loader)
    step = 0
    for epoch in range(epochs):
        running = torch.zeros((), device=device)
        for first, second, _ in loader:
            for group in optimizer.param_groups:
                group["lr"] = cosine(step, total, 0.05)
            loss = model(first.to(device), second.to(device))
            if not torch.isfinite(loss):
                log.warning("step %d diverged, skipping", step)
                optimizer.zero_grad()
                continue
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            model.follow()
            running += loss.detach()
            step += 1
            xm.mark_step()
        log.info("epoch %d  loss %.4f", epoch, running.item() / len(loader))


@torch.no_grad()
def retrieval(model, dataset, device):
    """Share of impressions whose nearest neighbour came from the same hammer."""
    embeddings = model.query(dataset.images.to(device))
    similarity = embeddings @ embeddings.t() - 2 * torch.eye(len(embeddings), device=device)
    nearest = similarity.argmax(1)
    torch_xla.sync()
    return (dataset.hammer[nearest.cpu()] == dataset.hammer).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=48)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(11)

    device = torch_xla.device()
    dataset = PostmarkDataset()
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = MomentumContrast().to(device)
    begin = time.perf_counter()
    train(model, loader, device, args.epochs)
    log.info("same hammer %.3f  (%.1f s)", retrieval(model, dataset, device), time.perf_counter() - begin)


if __name__ == "__main__":
    main()
