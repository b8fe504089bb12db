"""Keeps the predictions of every fourth step for a plot at the end."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
history = []


def train_step(step, model, opt, x, y):
    logits = model(x)
    loss = F.cross_entropy(logits, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss, logits.detach()


def batches(n):
    g = torch.Generator().manual_seed(12)
    for _ in range(n):
        x = torch.randn(16, 8, generator=g)
        yield x.to(device), (x[:, 0] > x[:, 1]).long().to(device)


model = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 2)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.2)
torch_xla.sync()
for step, (x, y) in enumerate(batches(16)):
    loss, logits = train_step(step, model, opt, x, y)
    torch_xla.sync()
    if step % 4 == 3:
        history.append(logits)
confident = torch.stack(history).softmax(-1).amax(-1).mean()
print("loss", round(loss.item(), 3), "confidence", round(confident.item(), 3))
