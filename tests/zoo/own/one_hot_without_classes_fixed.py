"""Labels are made one-hot without the number of classes, which is then the largest label of the batch."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
g = torch.Generator().manual_seed(2)
CLASSES = 5
model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, CLASSES)).to(device)
opt = torch.optim.Adam(model.parameters(), lr=0.01)


def brier(logits, labels):
    target = F.one_hot(labels, CLASSES).float()
    return ((logits.softmax(-1) - target) ** 2).sum(-1).mean()


torch_xla.sync()
for step in range(24):
    labels = torch.cat([torch.arange(CLASSES), torch.randint(0, CLASSES, (11,), generator=g)]).to(device)
    x = torch.randn(16, 20, generator=g).to(device)
    opt.zero_grad()
    loss = brier(model(x), labels)
    loss.backward()
    opt.step()
    torch_xla.sync()
print("loss", round(loss.item(), 3))
