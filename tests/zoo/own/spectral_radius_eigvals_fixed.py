"""Echo state network: the recurrent matrix is rescaled by its spectral radius in every step."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
W = (torch.randn(12, 12) / 3).to(device)
readout = nn.Linear(12, 2).to(device)
opt = torch.optim.SGD(readout.parameters(), lr=0.1)
g = torch.Generator().manual_seed(1)
torch_xla.sync()
for step in range(8):
    x = torch.randn(4, 6, 12, generator=g).to(device)
    target = x.mean(1)[:, :2]
    v = torch.ones(12, device=device)
    for _ in range(8):
        v = F.normalize(W.T @ (W @ v), dim=0)
    radius = (W @ v).norm()
    recurrent = W * (0.9 / radius)
    h = torch.zeros(4, 12, device=device)
    for t in range(6):
        h = torch.tanh(x[:, t] + h @ recurrent.T)
    loss = F.mse_loss(readout(h), target)
    opt.zero_grad()
    loss.backward()
    opt.step()
    W = W + 0.01 * torch.outer(h.detach().mean(0), h.detach().mean(0))
    torch_xla.sync()
print("loss", round(loss.item(), 4))
