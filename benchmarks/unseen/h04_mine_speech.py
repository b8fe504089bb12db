"""Voice commands from a mine's radio: a small transformer encoder on filterbank frames, trained with randomly dropped layers."""
import logging
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("mine.speech")

FRAMES, BANDS, WORDS = 40, 20, 8


class Commands(Dataset):
    """Every command is a path of formants through the bands, with radio noise over it."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        tracks = torch.rand(WORDS, 3, FRAMES, generator=torch.Generator().manual_seed(99)).cumsum(-1)
        tracks = BANDS * (0.5 + 0.45 * torch.sin(0.6 * tracks))
        self.words = torch.randint(0, WORDS, (n,), generator=g)
        bands = torch.arange(BANDS).view(1, 1, BANDS)
        shift = torch.randn(n, 1, 1, 1, generator=g)
        paths = tracks[self.words].unsqueeze(-1) + shift
        self.frames = torch.exp(-((bands - paths) / 1.5).square()).sum(1)
        self.frames += 0.35 * torch.randn(n, FRAMES, BANDS, generator=g)

    def __len__(self):
        return len(self.words)

    def __getitem__(self, i):
        return self.frames[i], self.words[i]


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = (q @ k.transpose(-1, -2) * (d // self.heads) ** -0.5).softmax(-1) @ v
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.ff(self.n2(x))


class Encoder(nn.Module):
    def __init__(self, dim=48, heads=4, depth=2, drop=0.3):
        super().__init__()
        self.stem = nn.Linear(BANDS, dim)
        self.place = nn.Parameter(0.02 * torch.randn(FRAMES, dim))
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(depth))
        self.head = nn.Linear(dim, WORDS)
        self.drop = drop
        self.rng = random.Random(17)

    def forward(self, frames):
        x = self.stem(frames) + self.place
        for layer in self.layers:
            if self.training and self.rng.random() < self.drop:
                continue
            x = layer(x)
        return self.head(x.mean(1))


def spec_mask(frames, width=6):
    """Blanks a band of time in each clip of the batch."""
    start = torch.randint(0, FRAMES - width, (frames.shape[0], 1))
    t = torch.arange(FRAMES)
    keep = (t < start) | (t >= start + width)
    return frames * keep.unsqueeze(-1)


class Session:
    def __init__(self, device, lr=1e-3, clip=1.0):
        self.device, self.clip = device, clip
        self.net = Encoder().to(device)
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=lr)
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.opt, lambda k: min(1.0, (k + 1) / 20))
        self.seen = 0

    def step(self, frames, words):
        logits = self.net(frames)
        loss = F.cross_entropy(logits, words)
        self.opt.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.net.parameters(), self.clip)
        self.opt.step()
        self.sched.step()
        self.seen += len(words)
        torch_xla.sync()
        log.debug(f"seen {self.seen} loss {loss:.4f} gradient {norm:.3f} lr {self.sched.get_last_lr()[0]:.2e}")
        return loss.detach()

    @torch.no_grad()
    def evaluate(self, loader):
        self.net.eval()
        right = torch.zeros((), device=self.device)
        torch_xla.sync()
        for frames, words in loader:
            right += (self.net(frames.to(self.device)).argmax(-1) == words.to(self.device)).sum()
            torch_xla.sync()
        self.net.train()
        return right.item() / len(loader.dataset)


def main():
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    torch.manual_seed(8)
    session = Session(torch_xla.device())
    train = DataLoader(Commands(768, 1), batch_size=32, shuffle=True, drop_last=True)
    held_out = DataLoader(Commands(128, 2), batch_size=64)
    for epoch in range(4):
        losses = []
        for frames, words in train:
            losses.append(session.step(spec_mask(frames).to(session.device), words.to(session.device)))
        mean = torch.stack(losses).mean().item()
        log.info("epoch %d loss %.3f accuracy %.3f", epoch, mean, session.evaluate(held_out))


if __name__ == "__main__":
    main()
