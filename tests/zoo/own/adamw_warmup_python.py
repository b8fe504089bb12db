"""Learning rate computed in Python, with restarts, and written into param_groups: each cycle starts at exactly 0."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
BASE, WARMUP, CYCLE = 1e-3, 4, 7


def set_learning_rate(opt, step):
    scale = min(1.0, step % CYCLE / WARMUP)
    for group in opt.param_groups:
        group["lr"] = BASE * scale


model = nn.Sequential(nn.Linear(12, 24), nn.Mish(), nn.Linear(24, 3)).to(device)
opt = torch.optim.AdamW(model.parameters(), lr=BASE, weight_decay=0.01)
g = torch.Generator().manual_seed(1)
torch_xla.sync()
for step in range(14):
    set_learning_rate(opt, step)
    x = torch.randn(16, 12, generator=g).to(device)
    y = torch.randint(0, 3, (16,), generator=g).to(device)
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    torch_xla.sync()
print("loss", round(loss.item(), 4))
