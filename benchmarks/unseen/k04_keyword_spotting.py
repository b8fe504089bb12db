"""Keyword spotting on synthetic tones; accelerate carries the training, xla is the device."""
import logging
import math
import os
import time

import torch
import torch_xla
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("kws")
RATE, CLIP = 2000, 1000
WORDS = ["go", "stop", "left", "right", "up", "down"]


class ToneWords(Dataset):
    """Every word is a chirp between two frequencies of its own, at a random place in the clip."""

    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.label = torch.randint(0, len(WORDS), (count,), generator=g)
        time_axis = torch.arange(CLIP) / RATE
        clips = []
        for label in self.label.tolist():
            low = 80 + 60 * label
            sweep = 120 * (1 if label % 2 else -0.5)
            start = 0.25 * torch.rand((), generator=g)
            envelope = torch.exp(-((time_axis - 0.12 - start) ** 2) / 0.004)
            tone = torch.sin(2 * math.pi * (low + sweep * time_axis) * time_axis)
            clips.append(envelope * tone + 0.3 * torch.randn(CLIP, generator=g))
        self.clips = torch.stack(clips)

    def __len__(self):
        return len(self.label)

    def __getitem__(self, index):
        return {"audio": self.clips[index], "label": self.label[index]}


class Frontend(nn.Module):
    """Strided learned filters with a log of the energy."""

    def __init__(self, channels=24):
        super().__init__()
        self.filters = nn.Conv1d(1, channels, 64, stride=16)

    def forward(self, audio):
        return torch.log(self.filters(audio[:, None]).square() + 1e-3)


class SeparableBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.depth = nn.Conv1d(channels, channels, 5, padding=2, groups=channels)
        self.point = nn.Conv1d(channels, channels, 1)
        self.norm = nn.GroupNorm(4, channels)

    def forward(self, x):
        return x + torch.relu(self.norm(self.point(self.depth(x))))


class Spotter(nn.Module):
    def __init__(self, channels=24, blocks=3):
        super().__init__()
        self.frontend = Frontend(channels)
        self.blocks = nn.Sequential(*[SeparableBlock(channels) for _ in range(blocks)])
        self.head = nn.Linear(channels, len(WORDS))

    def forward(self, audio):
        return self.head(self.blocks(self.frontend(audio)).mean(-1))


class RunningConfusion:
    """Scores of everything seen so far, for the confusion matrix and a threshold at the end."""

    def __init__(self, device):
        self.scores = torch.empty(0, len(WORDS), device=device)
        self.truth = torch.empty(0, dtype=torch.long, device=device)

    def add(self, scores, truth):
        self.scores = torch.cat([self.scores, scores])
        self.truth = torch.cat([self.truth, truth])

    def result(self):
        guess = self.scores.argmax(-1).cpu()
        truth = self.truth.cpu()
        matrix = torch.zeros(len(WORDS), len(WORDS), dtype=torch.long)
        matrix.index_put_((truth, guess), torch.ones(len(truth), dtype=torch.long), accumulate=True)
        return matrix


@torch.no_grad()
def evaluate(accelerator, model, loader):
    model.eval()
    confusion = RunningConfusion(accelerator.device)
    for batch in loader:
        scores = model(batch["audio"]).softmax(-1)
        scores, truth = accelerator.gather_for_metrics((scores, batch["label"]))
        confusion.add(scores, truth)
        torch_xla.sync()
    matrix = confusion.result()
    model.train()
    return matrix.diag().sum().item() / matrix.sum().item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    set_seed(3)
    accelerator = Accelerator(gradient_accumulation_steps=2)
    train_loader = DataLoader(ToneWords(768, 1), batch_size=16, shuffle=True, drop_last=True)
    valid_loader = DataLoader(ToneWords(320, 2), batch_size=16)
    model = Spotter()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    model, optimizer, train_loader, valid_loader = accelerator.prepare(model, optimizer, train_loader, valid_loader)

    step, recent = 0, []
    folder = "/tmp/keyword_spotting"
    os.makedirs(folder, exist_ok=True)
    for epoch in range(2):
        began = time.perf_counter()
        for batch in train_loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(batch["audio"]), batch["label"])
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            step += 1
            recent.append(loss.detach())
            if step % 24 == 0:
                log.info("step %d loss %.3f", step, torch.stack(recent).mean().item())
                recent.clear()
        accuracy = evaluate(accelerator, model, valid_loader)
        log.info("epoch %d accuracy %.3f in %.1f s", epoch, accuracy, time.perf_counter() - began)
        accelerator.save_model(model, folder)


if __name__ == "__main__":
    main()
