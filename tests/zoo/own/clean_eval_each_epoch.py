"""Trains, and evaluates at the end of each epoch in a graph of its own."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()


def dataset(n):
    x = torch.randn(n, 16)
    return TensorDataset(x, (x[:, 0] > 0).long())


def evaluate(model, loader):
    model.eval()
    correct = torch.zeros((), dtype=torch.long, device=device)
    with torch.no_grad():
        for x, y in loader:
            correct += (model(x.to(device)).argmax(1) == y.to(device)).sum()
            xm.mark_step()
    model.train()
    return correct


model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
train = DataLoader(dataset(128), batch_size=16, shuffle=True)
held_out = DataLoader(dataset(64), batch_size=16)
xm.mark_step()
for epoch in range(3):
    for x, y in train:
        x, y = x.to(device), y.to(device)
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        xm.mark_step()
    correct = evaluate(model, held_out)
    print(f"epoch {epoch}: accuracy {correct.item() / 64:.2f}")
