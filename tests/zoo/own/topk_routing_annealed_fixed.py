"""Mixture of experts: the number of experts each token is sent to falls during training."""
import torch
import torch.nn as nn
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
EXPERTS = 8


class Router(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.gate = nn.Linear(d, EXPERTS)
        self.experts = nn.Parameter(torch.randn(EXPERTS, d, d) / d**0.5)

    def forward(self, x, k):
        weight, index = torch.topk(self.gate(x), EXPERTS, dim=-1)
        weight = weight.masked_fill(torch.arange(EXPERTS, device=x.device) >= k, -1e9)
        mix = torch.zeros(x.shape[0], EXPERTS, device=x.device).scatter(1, index, weight.softmax(-1))
        return torch.einsum("be,edf,bd->bf", mix, self.experts, x)


def experts_used(step):
    return 8 if step < 4 else 4 if step < 8 else 2


model = Router().to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
g = torch.Generator().manual_seed(2)
torch_xla.sync()
for step in range(12):
    x = torch.randn(16, 16, generator=g).to(device)
    k = torch.tensor([experts_used(step)]).to(device)
    loss = (model(x, k) - x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    torch_xla.sync()
print("loss", loss.item())
