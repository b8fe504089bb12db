"""Evaluates after 6 steps and goes on training, but never switches the model back to train mode."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(10, 32)
        self.drop = nn.Dropout(0.3)
        self.out = nn.Linear(32, 3)

    def forward(self, x):
        return self.out(self.drop(F.relu(self.inp(x))))


def evaluate(model, x, y):
    model.eval()
    with torch.no_grad():
        wrong = (model(x).argmax(1) != y).float().mean()
    xm.mark_step()
    return wrong


model = Net().to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
g = torch.Generator().manual_seed(8)
x_val, y_val = torch.randn(40, 10, generator=g).to(device), torch.randint(0, 3, (40,), generator=g).to(device)
xm.mark_step()
for step in range(12):
    x = torch.randn(16, 10, generator=g).to(device)
    y = torch.randint(0, 3, (16,), generator=g).to(device)
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    xm.mark_step()
    if step == 5:
        wrong = evaluate(model, x_val, y_val)
print("error", round(wrong.item(), 3), "loss", round(loss.item(), 3))
