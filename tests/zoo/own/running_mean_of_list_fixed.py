"""Shows the mean of all losses so far, computed anew from a list that grows."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
model = nn.Linear(6, 1).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
g = torch.Generator().manual_seed(5)
total = torch.zeros((), device=device)
torch_xla.sync()
for step in range(8):
    x = torch.randn(16, 6, generator=g).to(device)
    opt.zero_grad()
    loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
    loss.backward()
    opt.step()
    total += loss.detach()
    smooth = total / torch.tensor([step + 1.0]).to(device)
    torch_xla.sync()
print("mean loss", round(smooth.item(), 4))
