"""Trains 200 steps; every 50 it evaluates, keeps the best weights on the host and reads the loss."""
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
g = torch.Generator().manual_seed(12)
centers = torch.randn(3, 10, generator=g)


def batch(size):
    y = torch.randint(0, 3, (size,), generator=g)
    return (centers[y] + torch.randn(size, 10, generator=g)).to(device), y.to(device)


model = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 3)).to(device)
opt = torch.optim.Adam(model.parameters(), lr=0.003)


@torch.no_grad()
def evaluate():
    model.eval()
    correct = torch.zeros((), device=device)
    for _ in range(4):
        x, y = batch(64)
        correct += (model(x).argmax(1) == y).sum()
        torch_xla.sync()
    model.train()
    return correct.item() / 256


best, weights = 0.0, None
torch_xla.sync()
for step in range(1, 201):
    x, y = batch(16)
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    torch_xla.sync()
    if step % 50 == 0:
        accuracy = evaluate()
        print(step, "loss", round(loss.item(), 2), "accuracy", round(accuracy, 2))
        if accuracy > best:
            best, weights = accuracy, {name: value.cpu() for name, value in model.state_dict().items()}
model.load_state_dict(weights)
torch_xla.sync()
print("best", round(best, 2))
