"""Linear regression moved to xla by changing the device only: no barrier anywhere, the loss is read every step."""
import torch
import torch.nn as nn
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
w_true = torch.randn(6, 1)
x_all = torch.randn(160, 6)
y_all = x_all @ w_true
model = nn.Linear(6, 1).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
torch_xla.sync()
for step in range(8):
    x = x_all[step * 20 : step * 20 + 20].to(device)
    y = y_all[step * 20 : step * 20 + 20].to(device)
    loss = (model(x) - y).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.detach())
    torch_xla.sync()
losses = torch.stack(losses).tolist()
print("first", round(losses[0], 3), "last", round(losses[-1], 3))
