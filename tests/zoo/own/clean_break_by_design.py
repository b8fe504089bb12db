"""A compiled trainer that leaves logging to a function which Dynamo is told not to compile."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()
g = torch.Generator().manual_seed(1)


seen = []


@torch.compiler.disable
def remember(value):
    seen.append(value.detach())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 12), nn.Linear(12, 2)

    def forward(self, x):
        h = torch.tanh(self.a(x))
        remember(h.mean())
        return self.b(h)


net = Net().to(device)
fast = torch.compile(net, backend="openxla")
opt = torch.optim.SGD(net.parameters(), lr=0.1)
xm.mark_step()
for step in range(10):
    x = torch.randn(8, 6, generator=g).to(device)
    opt.zero_grad()
    loss = F.cross_entropy(fast(x), (x[:, 0] > 0).long())
    loss.backward()
    opt.step()
    xm.mark_step()
print("mean", round(torch.stack(seen).mean().item(), 3))
