"""Truncated backpropagation through time without the truncation: the hidden state is never detached."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()
g = torch.Generator().manual_seed(1)


class CharRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNNCell(6, 12)
        self.out = nn.Linear(12, 6)

    def forward(self, x, h):
        h = self.rnn(x, h)
        return self.out(h), h


model = CharRNN().to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.01)
h = torch.zeros(4, 12).to(device)
xm.mark_step()
for step in range(14):
    x = torch.randn(4, 6, generator=g).to(device)
    out, h = model(x, h)
    loss = F.mse_loss(out, x)
    grads = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
    for p, d in zip(model.parameters(), grads):
        p.data.sub_(d, alpha=0.01)
    xm.mark_step()
print("loss", round(loss.item(), 3))
