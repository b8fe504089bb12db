"""A compiled model is used in train and in eval mode: one compilation for each, then reused."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 2)).to(device)
fast = torch.compile(model, backend="openxla")
opt = torch.optim.SGD(model.parameters(), lr=0.1)
g = torch.Generator().manual_seed(0)
x_val = torch.randn(24, 10, generator=g).to(device)
accuracy = []
torch_xla.sync()
for epoch in range(3):
    model.train()
    for _ in range(5):
        x = torch.randn(16, 10, generator=g).to(device)
        opt.zero_grad()
        loss = F.cross_entropy(fast(x), (x[:, 0] > 0).long())
        loss.backward()
        opt.step()
        torch_xla.sync()
    model.eval()
    with torch.no_grad():
        accuracy.append((fast(x_val).argmax(1) == (x_val[:, 0] > 0).long()).float().mean())
    torch_xla.sync()
print("accuracy", [round(value, 2) for value in torch.stack(accuracy).tolist()])
