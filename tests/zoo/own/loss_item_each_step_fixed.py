"""Text classifier with an average meter fed by loss.item() after each step."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()


class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value, n):
        self.total = self.total + value * n
        self.count += n


model = nn.Sequential(nn.EmbeddingBag(80, 24), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 4)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
meter = Meter()
g = torch.Generator().manual_seed(5)
xm.mark_step()
for step in range(20):
    ids = torch.randint(0, 80, (16, 10), generator=g).to(device)
    y = torch.randint(0, 4, (16,), generator=g).to(device)
    opt.zero_grad()
    loss = F.cross_entropy(model(ids), y)
    loss.backward()
    opt.step()
    xm.mark_step()
    meter.update(loss.detach(), len(y))
print("average loss", round(meter.total.item() / meter.count, 4))
