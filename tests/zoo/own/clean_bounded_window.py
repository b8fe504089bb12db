"""The mean loss of the last 20 steps is kept in a deque of detached tensors, and read every 40th step."""
from collections import deque
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
g = torch.Generator().manual_seed(14)
model = nn.Sequential(nn.Linear(14, 28), nn.ReLU(), nn.Linear(28, 2)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
window = deque(maxlen=20)
torch_xla.sync()
for step in range(1, 161):
    x = torch.randn(16, 14, generator=g)
    y = (x.sum(1) > 0).long()
    x, y = x.to(device), y.to(device)
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    torch_xla.sync()
    window.append(loss.detach())
    if step % 40 == 0:
        print(step, round(torch.stack(tuple(window)).mean().item(), 3))
