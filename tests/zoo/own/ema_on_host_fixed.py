"""The moving average of the weights is kept on the host: all weights come down in every step."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
g = torch.Generator().manual_seed(6)
model = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 2)).to(device)
opt = torch.optim.AdamW(model.parameters(), lr=0.003)
average = {name: p.detach().clone() for name, p in model.named_parameters()}
torch_xla.sync()
for step in range(25):
    x = torch.randn(16, 16, generator=g)
    y = (x[:, 0] > 0).long()
    x, y = x.to(device), y.to(device)
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    with torch.no_grad():
        for name, p in model.named_parameters():
            average[name].lerp_(p, 0.01)
    torch_xla.sync()
print("loss", round(loss.item(), 3), "average", round(average["0.bias"].mean().item(), 4))
