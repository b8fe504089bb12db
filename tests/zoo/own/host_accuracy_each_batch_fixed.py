"""Validation that computes its metric with numpy, batch by batch."""
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()
x = torch.randn(256, 12)
data = TensorDataset(x, (x.sum(1) > 0).long())
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 2)).to(device).eval()
confusion = torch.zeros(4, dtype=torch.long, device=device)
xm.mark_step()
with torch.no_grad():
    for xb, yb in DataLoader(data, batch_size=16):
        predicted = model(xb.to(device)).argmax(1)
        confusion += nn.functional.one_hot(2 * yb.to(device) + predicted, 4).sum(0)
        xm.mark_step()
confusion = confusion.cpu().numpy().reshape(2, 2)
precision = confusion[1, 1] / max(1, confusion[:, 1].sum())
print("precision", round(float(precision), 3))
