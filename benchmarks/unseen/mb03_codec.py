"""A tiny neural audio codec for machine-hall recordings (gear whine + impacts).

Strided conv encoder, one vector quantiser with an EMA codebook, conv decoder.
Reports the reconstruction SNR and the codebook perplexity.
"""
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

SR, CLIP = 8000, 2048


def machine_hall(n, gen):
    t = torch.arange(CLIP) / SR
    f0 = 60 + 140 * torch.rand(n, 1, generator=gen)
    out = torch.zeros(n, CLIP)
    for h in range(1, 6):
        phase = 2 * math.pi * torch.rand(n, 1, generator=gen)
        out += torch.sin(2 * math.pi * h * f0 * t + phase) / h
    hits = (torch.rand(n, CLIP, generator=gen) < 0.002).float()
    ring = torch.exp(-t[:200] * 150) * torch.sin(2 * math.pi * 1200 * t[:200])
    out += 2 * F.conv1d(hits.unsqueeze(1), ring.flip(0).view(1, 1, -1), padding=199)[:, 0, :CLIP]
    out += 0.02 * torch.randn(n, CLIP, generator=gen)
    return (out / out.abs().amax(1, keepdim=True)).unsqueeze(1)


class ResUnit(nn.Module):
    def __init__(self, ch, dilation):
        super().__init__()
        self.a = nn.Conv1d(ch, ch, 3, padding=dilation, dilation=dilation)
        self.b = nn.Conv1d(ch, ch, 1)

    def forward(self, x):
        return x + self.b(F.elu(self.a(F.elu(x))))


class EMAQuantizer(nn.Module):
    def __init__(self, n_codes, dim, decay=0.95, eps=1e-4):
        super().__init__()
        self.n_codes, self.decay, self.eps = n_codes, decay, eps
        book = torch.randn(n_codes, dim) * 0.1
        self.register_buffer("codebook", book)
        self.register_buffer("counts", torch.ones(n_codes))
        self.register_buffer("sums", book.clone())

    @torch.no_grad()
    def update(self, flat, idx):
        for k in range(self.n_codes):
            members = flat[idx == k]
            self.counts[k] = self.decay * self.counts[k] + (1 - self.decay) * len(members)
            if len(members):
                self.sums[k] = self.decay * self.sums[k] + (1 - self.decay) * members.sum(0)
            else:
                self.sums[k] = self.decay * self.sums[k]
        self.codebook.copy_(self.sums / (self.counts + self.eps).unsqueeze(1))

    def forward(self, z):
        flat = z.transpose(1, 2).reshape(-1, z.shape[1])
        dist = (flat.pow(2).sum(1, keepdim=True) - 2 * flat @ self.codebook.t()
                + self.codebook.pow(2).sum(1))
        idx = dist.argmin(1)
        quant = self.codebook[idx].view(z.shape[0], z.shape[2], -1).transpose(1, 2)
        if self.training:
            self.update(flat.detach(), idx)
        commit = F.mse_loss(z, quant.detach())
        return z + (quant - z).detach(), idx, commit


class Codec(nn.Module):
    def __init__(self, ch=16, dim=16, n_codes=512):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(1, ch, 7, padding=3), ResUnit(ch, 1), nn.Conv1d(ch, ch, 8, 4, 2),
            ResUnit(ch, 3), nn.Conv1d(ch, ch, 8, 4, 2), nn.ELU(), nn.Conv1d(ch, dim, 3, padding=1))
        self.vq = EMAQuantizer(n_codes, dim)
        self.decoder = nn.Sequential(
            nn.Conv1d(dim, ch, 3, padding=1), nn.ConvTranspose1d(ch, ch, 8, 4, 2), ResUnit(ch, 3),
            nn.ConvTranspose1d(ch, ch, 8, 4, 2), ResUnit(ch, 1), nn.Conv1d(ch, 1, 7, padding=3))

    def forward(self, x):
        q, idx, commit = self.vq(self.encoder(x))
        return self.decoder(q), idx, commit


def spectral_loss(a, b):
    loss = 0.0
    for n_fft in (256, 512):
        win = torch.hann_window(n_fft)
        A = torch.stft(a[:, 0], n_fft, n_fft // 2, window=win, return_complex=True).abs()
        B = torch.stft(b[:, 0], n_fft, n_fft // 2, window=win, return_complex=True).abs()
        loss = loss + F.l1_loss(A, B)
    return loss


def snr_db(x, y):
    return (10 * torch.log10(x.pow(2).sum() / (x - y).pow(2).sum())).item()


def main():
    torch.manual_seed(5)
    gen = torch.Generator().manual_seed(5)
    train, test = machine_hall(640, gen), machine_hall(32, gen)
    codec = Codec()
    step = torch.compile(codec, backend="aot_eager")
    opt = torch.optim.Adam(codec.parameters(), lr=2e-3)
    batch = 8
    for epoch in range(4):
        t0, run = time.time(), torch.zeros(())
        for idx in torch.randperm(len(train), generator=gen).split(batch):
            x = train[idx]
            y, codes, commit = step(x)
            loss = F.mse_loss(y, x) * 10 + spectral_loss(y, x) + 0.25 * commit
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            run += loss.detach()
        print(f"epoch {epoch}  loss {run.item() * batch / len(train):.3f}  {time.time() - t0:.1f}s")
    codec.eval()
    with torch.no_grad():
        y, codes, _ = codec(test)
    p = torch.bincount(codes, minlength=codec.vq.n_codes).float()
    p = p / p.sum()
    ppl = torch.exp(-(p * torch.log(p + 1e-9)).sum()).item()
    print(f"test SNR {snr_db(test, y):.2f} dB, perplexity {ppl:.1f}")


if __name__ == "__main__":
    main()
