"""A module uploads its table in every forward; the batch, and a buffer that is filled again, are new each time."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()


class Neighbours(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(32, 32)
        self.keys = F.normalize(torch.randn(30_000, 32), dim=1)

    def forward(self, x):
        keys = self.keys.to(x.device)
        return torch.logsumexp(self.project(x) @ keys[:64].t(), 1)


model = Neighbours().to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
rng, noise = np.random.default_rng(3), np.empty((16, 32), np.float32)
torch_xla.sync()
for step in range(30):
    noise[:] = rng.normal(size=noise.shape)
    x = torch.from_numpy(rng.normal(size=(16, 32)).astype(np.float32)).to(device)
    opt.zero_grad()
    loss = model(x + torch.from_numpy(noise).to(device)).square().mean()
    loss.backward()
    opt.step()
    torch_xla.sync()
print("loss", round(loss.item(), 4))
