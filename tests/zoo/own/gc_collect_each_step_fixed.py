"""Calls gc.collect() after each step, with a large vocabulary on the heap, to keep memory down."""
import gc
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
vocabulary = {f"token-{i}": [i, [i]] for i in range(150000)}
model = nn.Sequential(nn.EmbeddingBag(500, 16), nn.Linear(16, 2)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.3)
g = torch.Generator().manual_seed(1)
gc.freeze()
torch_xla.sync()
for step in range(20):
    ids = torch.randint(0, 500, (16, 8), generator=g).to(device)
    labels = torch.randint(0, 2, (16,), generator=g).to(device)
    opt.zero_grad()
    loss = F.cross_entropy(model(ids), labels)
    loss.backward()
    opt.step()
    torch_xla.sync()
print("vocabulary", len(vocabulary), "loss", round(loss.item(), 3))
