"""A compiled layer reads how to pool from an Enum that a schedule switches (any backend: this one runs on the CPU)."""
import enum
import torch
import torch.nn as nn


class Pooling(enum.Enum):
    MEAN = "mean"
    MAX = "max"


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 4)
        self.pooling = Pooling.MEAN

    def forward(self, x):
        if self.pooling is Pooling.MEAN:
            x = x.mean(1)
        else:
            x = x.amax(1)
        return self.linear(x)


torch.manual_seed(0)
head = Head()
fast = torch.compile(head, backend="aot_eager")
total = 0.0
for step in range(8):
    head.pooling = Pooling.MAX if step >= 4 else Pooling.MEAN
    total += fast(torch.randn(8, 5, 16)).sum().item()
print(round(total, 3))
