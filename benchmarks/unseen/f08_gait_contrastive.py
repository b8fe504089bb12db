"""Contrastive pretraining of a gait encoder (accelerometer windows) with a robust loss weight from the recent past."""
import collections
import math
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla


class Encoder(nn.Module):
    def __init__(self, channels=3, width=48, out=32):
        super().__init__()
        self.proj = nn.Linear(channels * 8, width)
        self.mix = nn.Linear(width, width)
        self.out = nn.Linear(width, out)

    def forward(self, x):                       # B, T, C
        b, t, c = x.shape
        x = x.reshape(b, t // 8, 8 * c)
        h = F.gelu(self.proj(x))
        h = h + F.gelu(self.mix(h))
        return F.normalize(self.out(h.mean(1)), dim=-1)


class Augment:
    """Two noisy views of a window; sizes never change."""

    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)

    def __call__(self, x):
        scale = 1 + 0.2 * torch.randn(x.shape[0], 1, 1, generator=self.g)
        jitter = 0.1 * torch.randn(x.shape, generator=self.g)
        return x * scale + jitter


class Tempering:
    """Divides the loss by how strongly the last losses scattered."""

    def __init__(self, memory=8):
        self.past = collections.deque(maxlen=memory)

    def scatter(self, loss):
        self.past.append(loss.detach())
        recent = torch.stack(list(self.past))
        return (recent - recent.mean()).abs().mean() + 0.5


class Walkers:
    def __init__(self, people=40, seed=0):
        self.g = torch.Generator().manual_seed(seed)
        self.freq = 1 + torch.rand(people, 3, generator=self.g) * 2
        self.phase = torch.rand(people, 3, generator=self.g) * 2 * math.pi
        self.t = torch.linspace(0, 2 * math.pi, 64)

    def window(self, batch):
        who = torch.randint(0, len(self.freq), (batch,), generator=self.g)
        start = torch.rand(batch, 1, 1, generator=self.g) * 6
        return torch.sin(self.freq[who][:, None] * (self.t[None, :, None] + start) + self.phase[who][:, None])


def info_nce(a, b, temperature):
    logits = a @ b.t() / temperature
    labels = torch.arange(a.shape[0], device=a.device)
    return 0.5 * (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels))


class Pretrainer:
    def __init__(self, batch=96):
        self.device = torch.device("xla")
        self.model = Encoder().to(self.device)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=2e-3, weight_decay=1e-2)
        self.walkers, self.aug = Walkers(), Augment(1)
        self.tempering = Tempering()
        self.batch = batch

    def temperature(self, i, total):
        return 0.5 - 0.4 * i / total

    def one(self, i, total):
        x = self.walkers.window(self.batch)
        a, b = self.aug(x).to(self.device), self.aug(x).to(self.device)
        loss = info_nce(self.model(a), self.model(b), self.temperature(i, total))
        weighted = loss / self.tempering.scatter(loss)
        self.opt.zero_grad()
        weighted.backward()
        self.opt.step()
        torch_xla.sync()
        return loss

    def run(self, total=300):
        for i in range(total):
            loss = self.one(i, total)
            if i % 100 == 99:
                print(f"{i + 1} nce {loss.item():.4f} t {self.temperature(i, total):.3f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    Pretrainer().run()
