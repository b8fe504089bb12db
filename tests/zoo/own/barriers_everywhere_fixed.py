"""Training step with a barrier after forward, backward, optimizer and scheduler."""
import torch
import torch.nn as nn
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 3)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
loss_fn = nn.CrossEntropyLoss()
g = torch.Generator().manual_seed(4)
running = torch.zeros((), device=device)
torch_xla.sync()
for step in range(16):
    x = torch.randn(16, 12, generator=g).to(device)
    y = torch.randint(0, 3, (16,), generator=g).to(device)
    opt.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward()
    opt.step()
    running += loss.detach()
    torch_xla.sync()
print("mean loss", round(running.item() / 16, 3))
