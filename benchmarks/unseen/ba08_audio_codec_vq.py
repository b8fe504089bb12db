import math
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F


class ToneBank:
    def __init__(self, rate=4000, length=512, seed=0):
        self.rate, self.length = rate, length
        self.g = torch.Generator().manual_seed(seed)

    def draw(self, n):
        t = torch.arange(self.length) / self.rate
        freq = 80 + 600 * torch.rand(n, 3, 1, generator=self.g)
        gain = torch.rand(n, 3, 1, generator=self.g)
        wave = (gain * torch.sin(2 * math.pi * freq * t)).sum(1, keepdim=True)
        return wave / wave.abs().amax(-1, keepdim=True)


class Quantizer(nn.Module):
    def __init__(self, codes, dim, warmup=2000):
        super().__init__()
        self.codes, self.warmup = codes, warmup
        self.updates = 0
        self.register_buffer("book", torch.randn(codes, dim) * 0.3)
        self.register_buffer("mass", torch.ones(codes))
        self.register_buffer("total", self.book.clone())

    def learn(self, flat, index):
        self.updates += 1
        decay = min(0.99, 1.0 - 1.0 / (1 + self.updates)) if self.updates < self.warmup else 0.99
        hot = F.one_hot(index, self.codes).to(flat.dtype)
        self.mass.mul_(decay).add_(hot.sum(0) * (1 - decay))
        self.total.mul_(decay).add_((hot.t() @ flat) * (1 - decay))
        self.book.copy_(self.total / self.mass.clamp(min=1e-3).unsqueeze(1))

    def forward(self, z):
        flat = z.transpose(1, 2).reshape(-1, z.size(1))
        distance = flat.square().sum(1, keepdim=True) - 2 * flat @ self.book.t() + self.book.square().sum(1)
        index = distance.argmin(1)
        q = self.book[index].view(z.size(0), z.size(2), -1).transpose(1, 2)
        if self.training:
            with torch.no_grad():
                self.learn(flat.detach(), index)
        commit = F.mse_loss(z, q.detach())
        return z + (q - z).detach(), commit, index


def down(i, o):
    return nn.Sequential(nn.Conv1d(i, o, 8, stride=4, padding=2), nn.ELU(), nn.Conv1d(o, o, 3, padding=1), nn.ELU())


def up(i, o):
    return nn.Sequential(nn.ConvTranspose1d(i, o, 8, stride=4, padding=2), nn.ELU(), nn.Conv1d(o, o, 3, padding=1))


class Codec(nn.Module):
    def __init__(self, width=12, codes=64):
        super().__init__()
        self.encode = nn.Sequential(down(1, width), down(width, 2 * width))
        self.quantize = Quantizer(codes, 2 * width)
        self.decode = nn.Sequential(up(2 * width, width), nn.ELU(), up(width, width), nn.ELU(),
                                    nn.Conv1d(width, 1, 3, padding=1))

    def forward(self, wave):
        q, commit, index = self.quantize(self.encode(wave))
        return self.decode(q), commit, index


def spectral_loss(a, b):
    loss = 0.0
    for n in (64, 128):
        window = torch.hann_window(n)
        sa = torch.stft(a.squeeze(1), n, n // 4, window=window, return_complex=True).abs()
        sb = torch.stft(b.squeeze(1), n, n // 4, window=window, return_complex=True).abs()
        loss = loss + F.l1_loss(sa, sb)
    return loss


def usage(index, codes):
    p = torch.bincount(index, minlength=codes).float()
    p = p / p.sum()
    return float(torch.exp(-(p * (p + 1e-9).log()).sum()))


def main(steps=400, batch=4):
    torch.manual_seed(0)
    bank, held_out = ToneBank(seed=1), ToneBank(seed=2)
    codec = Codec()
    fast = torch.compile(codec, backend="aot_eager")
    opt = torch.optim.AdamW(codec.parameters(), lr=1e-3, betas=(0.8, 0.99))
    recent = deque(maxlen=50)
    for step in range(1, steps + 1):
        wave = bank.draw(batch)
        out, commit, index = fast(wave)
        loss = F.l1_loss(out, wave) + 0.25 * commit + 0.1 * spectral_loss(out, wave)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(codec.parameters(), 1.0)
        opt.step()
        recent.append(loss.detach())
        if step % 100 == 0:
            codec.eval()
            with torch.no_grad():
                probe = held_out.draw(batch)
                rebuilt, _, codes = fast(probe)
                snr = 10 * torch.log10(probe.square().mean() / (probe - rebuilt).square().mean())
            codec.train()
            print(f"step {step} loss {torch.stack(list(recent)).mean():.4f} snr {snr:.2f} usage {usage(codes, 64):.1f}")


if __name__ == "__main__":
    main()
