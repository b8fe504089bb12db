"""Looks up the embedding of each step's domain with a 0-dimensional index on the device."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
DOMAINS = [2, 2, 4, 2, 4, 3, 2, 3, 4, 2]


class Conditional(nn.Module):
    def __init__(self):
        super().__init__()
        self.domain = nn.Parameter(torch.randn(5, 12))
        self.head = nn.Linear(12, 2)

    def forward(self, x, domain):
        shift = self.domain[domain]
        return self.head(x + shift)


model = Conditional().to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
g = torch.Generator().manual_seed(9)
torch_xla.sync()
for d in DOMAINS:
    x = torch.randn(16, 12, generator=g).to(device)
    y = torch.randint(0, 2, (16,), generator=g).to(device)
    opt.zero_grad()
    loss = F.cross_entropy(model(x, torch.tensor(d).to(device)), y)
    loss.backward()
    opt.step()
    torch_xla.sync()
print("loss", round(loss.item(), 4))
