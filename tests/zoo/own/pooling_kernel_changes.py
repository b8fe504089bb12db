"""Multi-scale pooling: the kernel size is drawn anew for each step from 2 and 4."""
import random
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
random.seed(1)
device = torch_xla.device()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3, padding=1)
        self.head = nn.Linear(6, 3)

    def forward(self, x, kernel):
        h = torch.relu(self.conv(x))
        h = F.avg_pool2d(h, kernel)
        return self.head(h.amax((2, 3)))


model = Net().to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
g = torch.Generator().manual_seed(2)
torch_xla.sync()
for step in range(10):
    x = torch.randn(8, 1, 16, 16, generator=g).to(device)
    y = torch.randint(0, 3, (8,), generator=g).to(device)
    kernel = 2 if step < 2 else random.choice([2, 4])
    opt.zero_grad()
    loss = F.cross_entropy(model(x, kernel), y)
    loss.backward()
    opt.step()
    torch_xla.sync()
print("loss", round(loss.item(), 3))
