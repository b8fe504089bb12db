"""Focal loss whose gamma rises by a quarter every second step."""
import torch
import torch.nn as nn
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()


class FocalLoss(nn.Module):
    def __init__(self, gamma):
        super().__init__()
        self.register_buffer("gamma", torch.tensor([gamma]))

    def forward(self, logits, target):
        logp = logits.log_softmax(1).gather(1, target[:, None])[:, 0]
        return -((1 - logp.exp()) ** self.gamma * logp).mean()


model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 4)).to(device)
criterion = FocalLoss(gamma=1.25).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
g = torch.Generator().manual_seed(6)
torch_xla.sync()
for step in range(10):
    criterion.gamma = torch.tensor([1.25 + 0.25 * (step // 2)]).to(device)
    x = torch.randn(16, 12, generator=g)
    y = torch.randint(0, 4, (16,), generator=g).to(device)
    opt.zero_grad()
    loss = criterion(model(x.to(device)), y)
    loss.backward()
    opt.step()
    torch_xla.sync()
print("loss", round(loss.item(), 4))
