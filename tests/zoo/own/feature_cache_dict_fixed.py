"""Inference keeps each request's features in a dict by its key, and never drops one."""
import torch
import torch.nn as nn
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
g = torch.Generator().manual_seed(9)
encoder = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256)).to(device).eval()
head = nn.Linear(256, 4).to(device).eval()
cache = {}


def features(key, x):
    if key not in cache:
        while len(cache) >= 8:
            cache.pop(next(iter(cache)))
        cache[key] = encoder(x)
    return cache[key]


answer = None
torch_xla.sync()
with torch.no_grad():
    for request in range(160):
        x = torch.randn(32, 64, generator=g).to(device)
        answer = head(features(f"user-{request}", x)).argmax(-1)
        torch_xla.sync()
print("answer", answer[:4].tolist())
