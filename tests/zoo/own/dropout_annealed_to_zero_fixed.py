"""Dropout falls to exactly 0 for the last steps."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
STEPS = 12


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(10, 20), nn.Linear(20, 2)
        self.p = 0.4

    def forward(self, x):
        h = F.relu(self.a(x))
        h = F.dropout(h, self.p, self.training)
        return self.b(h)


model = Net().to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
g = torch.Generator().manual_seed(3)
torch_xla.sync()
for step in range(STEPS):
    model.p = max(0.001, 0.4 - 0.05 * step)
    x = torch.randn(16, 10, generator=g).to(device)
    y = torch.randint(0, 2, (16,), generator=g).to(device)
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    torch_xla.sync()
print("loss", round(loss.item(), 4))
