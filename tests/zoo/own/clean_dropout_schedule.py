"""Dropout and label smoothing are annealed through Python floats that never reach 0; a focal weight by a tensor."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
drop = nn.Dropout(0.5)
model = nn.Sequential(nn.Linear(10, 30), nn.ReLU(), drop, nn.Linear(30, 4)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
g = torch.Generator().manual_seed(1)
torch_xla.sync()
for step in range(16):
    drop.p = 0.5 - 0.02 * step
    x = torch.randn(8, 10, generator=g).to(device)
    y = torch.randint(0, 4, (8,), generator=g).to(device)
    gamma = torch.tensor([2 - step / 16]).to(device)
    opt.zero_grad()
    logits = model(x)
    p = logits.softmax(-1).gather(1, y[:, None]).squeeze(1)
    loss = ((1 - p).pow(gamma) * F.cross_entropy(logits, y, reduction="none", label_smoothing=0.2 - 0.01 * step)).mean()
    loss.backward()
    opt.step()
    torch_xla.sync()
print("loss", round(loss.item(), 3))
