"""Which paper mill made the stamp? Watermarks under raking light, trained with Accelerate."""

import argparse
import json
import math
import os
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset

import torch_xla

MILLS = 6


class WatermarkDataset(Dataset):
    def __init__(self, count, size, seed):
        generator = torch.Generator().manual_seed(seed)
        grid = torch.linspace(0, 1, size)
        self.mill = torch.randint(0, MILLS, (count,), generator=generator)
        pitch = torch.tensor([3.0, 4.0, 5.0, 6.0, 7.0, 8.0])[self.mill]
        angle = 0.3 * torch.randn(count, generator=generator)
        shift = torch.rand(count, generator=generator) * 2 * math.pi
        across = grid[None, :, None] * angle.cos()[:, None, None] + grid[None, None, :] * angle.sin()[:, None, None]
        laid = torch.cos(2 * math.pi * pitch[:, None, None] * across + shift[:, None, None])
        self.images = (laid + 0.7 * torch.randn(count, size, size, generator=generator))[:, None]

    def __len__(self):
        return len(self.mill)

    def __getitem__(self, index):
        return {"image": self.images[index], "mill": self.mill[index]}


class PatchMixer(nn.Module):
    def __init__(self, size, patch=4, width=32, depth=2):
        super().__init__()
        tokens = (size // patch) ** 2
        self.embed = nn.Conv2d(1, width, patch, stride=patch)
        self.mix = nn.ModuleList(nn.Linear(tokens, tokens) for _ in range(depth))
        self.channels = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)) for _ in range(depth)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth))
        self.head = nn.Linear(width, MILLS)

    def forward(self, image):
        x = self.embed(image).flatten(2).transpose(1, 2)
        for index, (mix, channel) in enumerate(zip(self.mix, self.channels)):
            x = x + mix(self.norms[2 * index](x).transpose(1, 2)).transpose(1, 2)
            x = x + channel(self.norms[2 * index + 1](x))
        return self.head(x.mean(1))


@torch.no_grad()
def evaluate(accelerator, model, loader):
    model.eval()
    hits, seen = [], 0
    for batch in loader:
        guess = model(batch["image"]).argmax(-1)
        guess, mill = accelerator.gather_for_metrics((guess, batch["mill"]))
        hits.append((guess == mill).sum())
        seen += len(mill)
        torch_xla.sync()
    model.train()
    return torch.stack(hits).sum().item() / seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--size", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--log-every", type=int, default=50)
    args = parser.parse_args()

    set_seed(2)
    accelerator = Accelerator(gradient_accumulation_steps=args.accumulate)
    train = DataLoader(WatermarkDataset(1280, args.size, 0), args.batch_size, shuffle=True, drop_last=True)
    # 192 is a multiple of the evaluation's batch, which is larger: nothing is kept for a backward pass there
    held_out = DataLoader(WatermarkDataset(192, args.size, 1), 2 * args.batch_size)
    model = PatchMixer(args.size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(train) // args.accumulate)
    model, optimizer, train, held_out = accelerator.prepare(model, optimizer, train, held_out)

    began = time.perf_counter()
    total = torch.zeros((), device=accelerator.device)
    step = 0
    history = []
    for epoch in range(args.epochs):
        for batch in train:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(batch["image"]), batch["mill"])
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            total += loss.detach()
            torch_xla.sync()
            if accelerator.sync_gradients:
                schedule.step()
            step += 1
            if step % args.log_every == 0:
                history.append({"step": step, "loss": round(total.item() / args.log_every, 4)})
                accelerator.print(json.dumps(history[-1]))
                total = torch.zeros((), device=accelerator.device)
        if epoch % 5 == 4:
            accelerator.print(f"epoch {epoch + 1}: {evaluate(accelerator, model, held_out):.3f}")

    with tempfile.TemporaryDirectory() as folder:
        accelerator.save(accelerator.get_state_dict(model), os.path.join(folder, "mixer.pt"))
    accelerator.print(f"{step} micro-steps in {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
