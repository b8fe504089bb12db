"""A class for metrics keeps every loss for a plot at the end, with the history of its gradient."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()


class Metrics:
    def __init__(self):
        self.count = 0
        self.history = []

    def update(self, loss, size):
        self.count += size
        self.history.append(loss)

    def plot(self):
        return torch.stack(self.history).detach().cpu()


model = nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 4)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
metrics = Metrics()
g = torch.Generator().manual_seed(0)
torch_xla.sync()
for step in range(120):
    x = torch.randn(32, 32, generator=g).to(device)
    y = torch.randint(0, 4, (32,), generator=g).to(device)
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    metrics.update(F.cross_entropy(model(x), y), len(x))
    torch_xla.sync()
print("seen", metrics.count, "last loss", round(metrics.plot()[-1].item(), 3))
