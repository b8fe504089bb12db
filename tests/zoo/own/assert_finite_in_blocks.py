"""Each block asserts that its activations are finite."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()


def check_finite(x, where):
    assert torch.isfinite(x).all(), f"not finite after {where}"
    return x


class Residual(nn.Module):
    def __init__(self, d, name):
        super().__init__()
        self.norm, self.fc, self.name = nn.LayerNorm(d), nn.Linear(d, d), name

    def forward(self, x):
        return check_finite(x + F.gelu(self.fc(self.norm(x))), self.name)


model = nn.Sequential(Residual(12, "one"), Residual(12, "two"), nn.Linear(12, 3)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
g = torch.Generator().manual_seed(4)
torch_xla.sync()
for step in range(10):
    x = torch.randn(8, 12, generator=g).to(device)
    y = torch.randint(0, 3, (8,), generator=g).to(device)
    loss = F.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    torch_xla.sync()
print("loss", round(loss.item(), 4))
