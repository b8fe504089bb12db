"""A debug print left in a block of a compiled model (any backend: this one runs on the CPU)."""
import torch
import torch.nn as nn

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, d, name):
        super().__init__()
        self.name = name
        self.lin = nn.Linear(d, d)

    def forward(self, x):
        y = torch.relu(self.lin(x))
        if self.name == "second":
            print("block", self.name, "activations", y.shape)
        return x + y


class Net(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.first = Block(d, "first")
        self.second = Block(d, "second")
        self.head = nn.Linear(d, 2)

    def forward(self, x):
        return self.head(self.second(self.first(x)))


model = torch.compile(Net().eval(), backend="aot_eager")
with torch.no_grad():
    total = sum(model(torch.randn(4, 16)).sum() for _ in range(5))
print("total", total.shape)
