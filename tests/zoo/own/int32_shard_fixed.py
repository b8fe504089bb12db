"""Click model trained from two shards; the second was written with int32 ids."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()


class Clicks(nn.Module):
    def __init__(self, items=50, d=8):
        super().__init__()
        self.item = nn.Embedding(items, d)
        self.head = nn.Linear(d, 1)

    def forward(self, ids):
        return self.head(self.item(ids).mean(1)).squeeze(1)


def shard(name, dtype):
    rng = np.random.default_rng(len(name))
    ids = rng.integers(0, 50, (48, 6)).astype(dtype)
    return ids, (ids.sum(1) % 2).astype(np.float32)


model = Clicks().to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.2)
xm.mark_step()
for name, dtype in [("monday", np.int64), ("tuesday", np.int32)]:
    ids, clicked = shard(name, dtype)
    for at in range(0, len(ids), 8):
        x = torch.from_numpy(ids[at : at + 8]).long().to(device)
        y = torch.from_numpy(clicked[at : at + 8]).to(device)
        opt.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(x), y)
        loss.backward()
        opt.step()
        xm.mark_step()
print("loss", round(loss.item(), 4))
