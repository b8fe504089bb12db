"""Sparse recommender: each step looks up only the distinct items of its batch."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
ITEMS = [9, 9, 7, 9, 7, 9, 9, 7]  # how many distinct items the batches hold


def batches():
    g = torch.Generator().manual_seed(4)
    for distinct in ITEMS:
        ids = torch.arange(24) % distinct + torch.randint(0, 20, (1,), generator=g)
        yield ids[torch.randperm(24, generator=g)], torch.rand(24, generator=g)


table = nn.Embedding(40, 8).to(device)
head = nn.Linear(8, 1).to(device)
opt = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.1)
torch_xla.sync()
for ids, clicks in batches():
    ids, clicks = ids.to(device), clicks.to(device)
    rows = torch.tanh(table(ids))
    loss = F.mse_loss(head(rows).squeeze(1), clicks)
    opt.zero_grad()
    loss.backward()
    opt.step()
    torch_xla.sync()
print("loss", round(loss.item(), 4))
