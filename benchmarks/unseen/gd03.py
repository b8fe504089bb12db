"""Masked-frame pretraining of a small audio encoder (SpecAugment-like spans) on the xla device.

The clips are synthetic chirps and noise; the objective is to fill in the hidden mel frames.
"""
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

MELS, FRAMES, DIM, BATCH = 40, 64, 48, 16
TRAIN_STEPS, VALID_BATCHES, CLIPS = 6, 10, 320


def synth_clips(count, generator):
    """Log-mel-like pictures: two chirps that rise or fall, and some pink-ish floor."""
    t = torch.linspace(0, 1, FRAMES)
    bins = torch.arange(MELS, dtype=torch.float32)[None, :, None]
    picture = 0.15 * torch.randn(count, MELS, FRAMES, generator=generator)
    for _ in range(2):
        start = torch.rand(count, 1, generator=generator) * MELS
        slope = (torch.rand(count, 1, generator=generator) - 0.5) * 50
        track = (start + slope * t + 3 * torch.sin(2 * math.pi * 3 * t)) % MELS
        picture += torch.exp(-((bins - track[:, None, :]) ** 2) / 4.0)
    return picture.transpose(1, 2).contiguous()  # (clip, frame, mel)


def span_mask(batch, generator, spans=3, widest=9):
    mask = torch.zeros(batch, FRAMES, dtype=torch.bool)
    for row in range(batch):
        for _ in range(spans):
            width = int(torch.randint(3, widest + 1, (1,), generator=generator))
            left = int(torch.randint(0, FRAMES - width, (1,), generator=generator))
            mask[row, left:left + width] = True
    return mask


class ConvBlock(nn.Module):
    def __init__(self, dim, dilation):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.conv = nn.Conv1d(dim, 2 * dim, 5, padding=2 * dilation, dilation=dilation)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        h = self.conv(self.norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.out(F.glu(h, dim=-1))


class MaskedFrames(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(MELS, DIM)
        self.hidden = nn.Parameter(0.02 * torch.randn(DIM))
        self.blocks = nn.ModuleList(ConvBlock(DIM, d) for d in (1, 4))
        self.head = nn.Linear(DIM, MELS)

    def forward(self, frames, mask):
        x = self.embed(frames)
        x = torch.where(mask[..., None], self.hidden, x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    def loss(self, frames, mask):
        predicted = self(frames, mask)
        return F.smooth_l1_loss(predicted[mask], frames[mask])


def batches(clips, generator):
    order = torch.randperm(len(clips), generator=generator)
    for start in range(0, len(clips) - BATCH + 1, BATCH):
        yield clips[order[start:start + BATCH]], span_mask(BATCH, generator)


@torch.no_grad()
def validate(model, held_out, device):
    """Squared error and energy of the hidden frames."""
    model.eval()
    error = torch.zeros((), device=device)
    energy = torch.zeros((), device=device)
    for clips, mask in held_out:
        predicted = model(clips, mask)
        weight = mask[..., None].float()
        error += ((predicted - clips) ** 2 * weight).sum()
        energy += (clips ** 2 * weight).sum()
        torch_xla.sync()
    model.train()
    return error.item(), energy.item()


def main():
    torch.manual_seed(3)
    generator = torch.Generator().manual_seed(3)
    device = torch_xla.device()
    clips = synth_clips(CLIPS, generator)
    held_out = [(c.to(device), m.to(device))
                for c, m in batches(synth_clips(VALID_BATCHES * BATCH, generator), generator)]
    model = MaskedFrames().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    began = time.perf_counter()
    for epoch in range(2):
        running = torch.zeros((), device=device)
        steps = 0
        for frames, mask in batches(clips, generator):
            if steps == TRAIN_STEPS:
                break
            optimizer.zero_grad()
            loss = model.loss(frames.to(device), mask.to(device))
            loss.backward()
            xm.optimizer_step(optimizer)
            running += loss.detach()
            torch_xla.sync()
            steps += 1
        error, energy = validate(model, held_out, device)
        print(f"epoch {epoch}: train loss {running.item() / steps:.4f}, "
              f"held-out unexplained {error / energy:.3f}, {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
