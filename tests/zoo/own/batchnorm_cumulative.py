"""Batch normalisation with a cumulative average (momentum=None) asks its counter for a number in each forward pass."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(2, 6, 3)
        self.norm = nn.BatchNorm1d(6, momentum=None)
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        h = torch.relu(self.norm(self.conv(x)))
        return self.head(h.mean(-1))


model = Net().to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
g = torch.Generator().manual_seed(0)
torch_xla.sync()
for step in range(12):
    x = torch.randn(8, 2, 16, generator=g).to(device)
    y = torch.randint(0, 2, (8,), generator=g).to(device)
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    torch_xla.sync()
print("loss", round(loss.item(), 3))
