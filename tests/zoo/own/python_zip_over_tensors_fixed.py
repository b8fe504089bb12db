"""Accuracy is counted in a Python loop over the predictions of a batch."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
g = torch.Generator().manual_seed(5)
centers = torch.randn(4, 12, generator=g)
model = nn.Linear(12, 4).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.2)
correct = torch.zeros((), dtype=torch.int64, device=device)
seen = 0
torch_xla.sync()
for step in range(20):
    target = torch.randint(0, 4, (8,), generator=g)
    x = (centers[target] + torch.randn(8, 12, generator=g)).to(device)
    target = target.to(device)
    opt.zero_grad()
    logits = model(x)
    loss = F.cross_entropy(logits, target)
    loss.backward()
    opt.step()
    predicted = logits.argmax(1)
    correct += (predicted == target).sum()
    torch_xla.sync()
    seen += len(target)
print("accuracy", round(correct.item() / seen, 2))
