"""Contrastive learning of sound embeddings; the temperature falls during training. Compiled with aot_eager to check gradients."""
import argparse
import logging
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("audio")


def make_clips(rows, length, gen):
    pitch = 3 + 20 * torch.rand(rows, 1, generator=gen)
    t = torch.linspace(0, 1, length)
    clean = torch.sin(2 * math.pi * pitch * t) + 0.5 * torch.sin(4 * math.pi * pitch * t)
    return clean.unsqueeze(1)


def augment(clips, gen):
    """Another loudness and some noise; the pitch stays."""
    gain = 0.5 + torch.rand(clips.shape[0], 1, 1, generator=gen)
    return gain * clips + 0.1 * torch.randn(clips.shape, generator=gen)


class Encoder(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.convs = nn.Sequential(
            nn.Conv1d(1, width, 7, stride=4), nn.GELU(), nn.Conv1d(width, width, 5, stride=3), nn.GELU(),
        )
        self.project = nn.Linear(width, out)

    def forward(self, clips):
        return F.normalize(self.project(self.convs(clips).amax(-1)), dim=-1)


class ContrastiveModel(nn.Module):
    """InfoNCE with a memory of earlier embeddings, which is used once warmup is over."""

    def __init__(self, width=24, out=16, memory=128, warmup=5):
        super().__init__()
        self.encoder = Encoder(width, out)
        self.register_buffer("memory", F.normalize(torch.randn(memory, out), dim=-1))
        self.warmup = warmup
        self.batches_seen = 0

    def forward(self, one, two):
        a, b = self.encoder(one), self.encoder(two)
        temperature = max(0.1, 0.5 * 0.97**self.batches_seen)
        logits = a @ b.t() / temperature
        if self.batches_seen >= self.warmup:
            logits = torch.cat([logits, a @ self.memory.t() / temperature], dim=1)
        self.batches_seen += 1
        target = torch.arange(len(a), device=a.device)
        return F.cross_entropy(logits, target), b.detach()

    @torch.no_grad()
    def remember(self, embeddings):
        self.memory.copy_(torch.cat([embeddings, self.memory])[: len(self.memory)])


@torch.no_grad()
def retrieval(encoder, gen, rows, length):
    clips = make_clips(rows, length, gen)
    a, b = encoder(augment(clips, gen)), encoder(augment(clips, gen))
    return ((a @ b.t()).argmax(1) == torch.arange(rows)).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--length", type=int, default=400)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)

    model = ContrastiveModel()
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(1, args.steps + 1):
        clips = make_clips(args.rows, args.length, gen)
        loss, embeddings = compiled(augment(clips, gen), augment(clips, gen))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        model.remember(embeddings)
        if step % 10 == 0:
            log.info("step %d: loss %.3f, retrieval %.2f", step, loss.item(), retrieval(model.encoder, gen, 32, args.length))


if __name__ == "__main__":
    main()
