"""Online hard example mining in Python: asks for each sample whether its loss is above a threshold."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()
g = torch.Generator().manual_seed(1)
net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
sgd = torch.optim.SGD(net.parameters(), lr=0.1)
BATCH, THRESHOLD = 6, 1.2


def mine(logits, labels):
    per_sample = F.cross_entropy(logits, labels, reduction="none")
    hard = []
    for i in range(BATCH):
        if per_sample[i] > THRESHOLD:
            hard.append(per_sample[i])
    return torch.stack(hard).mean() if hard else per_sample.mean()


for it in range(12):
    x = torch.randn(BATCH, 10, generator=g).to(device)
    labels = torch.randint(0, 4, (BATCH,), generator=g).to(device)
    loss = mine(net(x), labels)
    sgd.zero_grad()
    loss.backward()
    sgd.step()
    xm.mark_step()
print("loss", round(loss.item(), 3))
