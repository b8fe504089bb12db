"""torch.compile: selecting by a boolean mask in the loss."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def masked_mse(pred, target, valid):
    error = (pred - target)[valid]
    return error.pow(2).mean()


class Objective(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d, d), nn.Tanh())

    def forward(self, x, target, valid):
        return masked_mse(self.net(x), target, valid)


torch.manual_seed(0)
objective = torch.compile(Objective(), backend="aot_eager")
for _ in range(4):
    x = torch.randn(10, 6)
    loss = objective(x, x, torch.rand(10, 6) > 0.3)
    loss.backward()
print(loss.shape)
