"""Non-autoregressive acoustic model: phonemes and durations to mel frames."""
import logging
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
import torch_xla
import torch_xla.core.xla_model as xm

log = logging.getLogger("voice")


@dataclass
class Config:
    phonemes: int = 40
    width: int = 48
    mels: int = 20
    text_len: int = 12
    batch: int = 8
    utterances: int = 96
    epochs: int = 2
    lr: float = 1e-3


class Utterances(Dataset):
    def __init__(self, cfg, seed):
        rng = np.random.default_rng(seed)
        self.text = rng.integers(1, cfg.phonemes, (cfg.utterances, cfg.text_len))
        self.duration = rng.integers(1, 6, (cfg.utterances, cfg.text_len))
        table = rng.normal(size=(cfg.phonemes, cfg.mels)).astype(np.float32)
        self.mel = [np.repeat(table[t], d, axis=0) + 0.05 * rng.normal(size=(d.sum(), cfg.mels)).astype(np.float32)
                    for t, d in zip(self.text, self.duration)]

    def __len__(self):
        return len(self.text)

    def __getitem__(self, i):
        return torch.from_numpy(self.text[i]), torch.from_numpy(self.duration[i]), torch.from_numpy(self.mel[i].astype(np.float32))


def collate(items):
    text = torch.stack([t for t, _, _ in items])
    duration = torch.stack([d for _, d, _ in items])
    frames = torch.cat([m for _, _, m in items])
    mel = frames.new_zeros(len(items) * text.shape[1] * 5, frames.shape[1])
    mel[: len(frames)] = frames
    return text, duration, mel


class ConvBlock(nn.Module):
    def __init__(self, width, kernel=5):
        super().__init__()
        self.conv = nn.Conv1d(width, width, kernel, padding=kernel // 2)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return x + self.norm(F.relu(self.conv(x.transpose(1, 2))).transpose(1, 2))


class LengthRegulator(nn.Module):
    """Repeats each phoneme's state for as many frames as it lasts; utterances are laid end to end."""

    def forward(self, states, durations):
        flat = states.reshape(-1, states.shape[-1])
        return flat.repeat_interleave(durations.reshape(-1), dim=0)


class Acoustic(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Embedding(cfg.phonemes, cfg.width, padding_idx=0)
        self.encoder = nn.Sequential(ConvBlock(cfg.width), ConvBlock(cfg.width))
        self.duration_head = nn.Linear(cfg.width, 1)
        self.regulate = LengthRegulator()
        self.decoder = nn.Sequential(ConvBlock(cfg.width), ConvBlock(cfg.width))
        self.to_mel = nn.Linear(cfg.width, cfg.mels)

    def forward(self, text, durations):
        states = self.encoder(self.embed(text))
        log_duration = self.duration_head(states).squeeze(-1)
        frames = self.regulate(states, durations)
        return self.to_mel(self.decoder(frames[None]))[0], log_duration


class GradientMonitor:
    """Keeps the running norms of the gradients, layer by layer, for the health page."""

    def __init__(self, model, decay=0.9):
        self.model, self.decay, self.norms = model, decay, {}

    def update(self):
        for name, p in self.model.named_parameters():
            norm = p.grad.norm().item()
            self.norms[name] = self.decay * self.norms.get(name, norm) + (1 - self.decay) * norm

    def worst(self):
        return max(self.norms.items(), key=lambda kv: kv[1])


def train(cfg, device):
    loader = DataLoader(Utterances(cfg, 0), cfg.batch, shuffle=True, collate_fn=collate, drop_last=True)
    model = Acoustic(cfg).to(device)
    monitor = GradientMonitor(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    for epoch in range(cfg.epochs):
        total, started = torch.zeros((), device=device), time.time()
        for text, duration, mel in loader:
            text, duration, mel = text.to(device), duration.to(device), mel.to(device)
            predicted, log_duration = model(text, duration)
            mel_loss = F.l1_loss(predicted, mel[: len(predicted)])
            duration_loss = F.mse_loss(log_duration, torch.log(duration.float() + 1))
            loss = mel_loss + 0.1 * duration_loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
            torch_xla.sync()
            monitor.update()
        layer, norm = monitor.worst()
        log.info("epoch %d loss %.4f (%.1f s), largest gradient %s %.3f", epoch, total.item() / len(loader),
                 time.time() - started, layer, norm)


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(1)
    train(Config(), xm.xla_device())


if __name__ == "__main__":
    main()
