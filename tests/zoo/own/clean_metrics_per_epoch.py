"""Keeps a dict of metrics on the device and reads it once per epoch."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
import torch_xla
import torch_xla.core.xla_model as xm
from torch_xla.distributed.parallel_loader import MpDeviceLoader

torch.manual_seed(0)
device = xm.xla_device()
x = torch.randn(300, 16)
data = TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long())
loader = MpDeviceLoader(DataLoader(data, batch_size=32, shuffle=True, drop_last=True), device)
model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
xm.mark_step()
for epoch in range(3):
    metrics = {"loss": torch.zeros((), device=device), "accuracy": torch.zeros((), device=device)}
    xm.mark_step()
    for xb, yb in loader:
        opt.zero_grad()
        logits = model(xb)
        loss = F.cross_entropy(logits, yb)
        loss.backward()
        opt.step()
        metrics["loss"] += loss.detach()
        metrics["accuracy"] += (logits.argmax(1) == yb).float().mean()
    print(epoch, {name: round(value.item() / 9, 3) for name, value in metrics.items()})
