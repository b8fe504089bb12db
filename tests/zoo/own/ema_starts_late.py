"""Keeps an exponential moving average of the weights from step 6 on."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
EMA_START = 6


class EMA:
    def __init__(self, decay=0.95):
        self.decay, self.shadow = decay, None

    @torch.no_grad()
    def update(self, model):
        if self.shadow is None:
            self.shadow = [p.detach().clone() for p in model.parameters()]
            return
        for average, p in zip(self.shadow, model.parameters()):
            average.lerp_(p, 1 - self.decay)


model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 1)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
ema = EMA()
g = torch.Generator().manual_seed(9)
torch_xla.sync()
for step in range(14):
    x = torch.randn(16, 10, generator=g).to(device)
    opt.zero_grad()
    loss = F.mse_loss(model(x), x[:, :1])
    loss.backward()
    opt.step()
    if step >= EMA_START:
        ema.update(model)
    torch_xla.sync()
drift = sum((a - p).abs().sum() for a, p in zip(ema.shadow, model.parameters()))
print("loss", round(loss.item(), 4), "drift", round(drift.item(), 4))
