"""District heating load forecast: seq2seq GRU with a horizon that is extended as training goes on."""
import math
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm


class Horizon:
    """Callable curriculum: how many hours ahead the decoder is trained."""

    def __init__(self, first, last, every):
        self.first, self.last, self.every = first, last, every

    def __call__(self, step):
        return min(self.last, self.first + step // self.every)


class Forecaster(nn.Module):
    def __init__(self, n_in=5, hidden=64):
        super().__init__()
        self.enc = nn.GRUCell(n_in, hidden)
        self.dec = nn.GRUCell(1, hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, past, hours):
        h = past.new_zeros(past.shape[0], self.enc.hidden_size)
        for t in range(past.shape[1]):
            h = self.enc(past[:, t], h)
        y = past[:, -1, :1]
        preds = []
        for _ in range(hours):
            h = self.dec(y, h)
            y = y + self.out(h)
            preds.append(y)
        return torch.cat(preds, 1)


class Plant:
    def __init__(self, hours=4000, seed=1):
        g = torch.Generator().manual_seed(seed)
        t = torch.arange(hours, dtype=torch.float32)
        temp = 5 + 8 * torch.sin(2 * math.pi * t / 2000) + torch.randn(hours, generator=g)
        load = 1.2 - 0.05 * temp + 0.3 * torch.sin(2 * math.pi * t / 24) + 0.05 * torch.randn(hours, generator=g)
        day = 2 * math.pi * t / 24
        self.table = torch.stack([load, temp / 10, day.sin(), day.cos(), torch.ones(hours)], 1)
        self.g = g

    def sample(self, batch, past, future):
        starts = torch.randint(0, len(self.table) - past - future, (batch,), generator=self.g)
        idx = starts[:, None] + torch.arange(past + future)
        block = self.table[idx]
        return block[:, :past], block[:, past:, 0]


class Trainer:
    def __init__(self, past=6, batch=64):
        self.device = xm.xla_device()
        self.model = Forecaster().to(self.device)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=3e-3)
        self.plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(self.opt, factor=0.7, patience=40, min_lr=1e-4)
        self.horizon = Horizon(2, 8, every=30)
        self.past, self.batch = past, batch
        self.plant = Plant()

    def step(self, i):
        hours = self.horizon(i)
        x, y = self.plant.sample(self.batch, self.past, hours)
        x, y = x.to(self.device), y.to(self.device)
        pred = self.model(x, hours)
        loss = (pred - y).square().mean()
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.opt.step()
        xm.mark_step()
        return loss

    def fit(self, steps):
        for i in range(steps):
            loss = self.step(i)
            self.plateau.step(loss.detach())
            if i % 60 == 59:
                print(f"step {i + 1} horizon {self.horizon(i)} loss {loss.item():.4f} lr {self.opt.param_groups[0]['lr']:.5f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    Trainer().fit(240)
