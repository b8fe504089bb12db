"""Two loss terms: the weight of the second one rises and, for a while, equals that of the first."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(10, 20)
        self.label, self.recon = nn.Linear(20, 3), nn.Linear(20, 10)

    def forward(self, x):
        h = torch.tanh(self.body(x))
        return self.label(h), self.recon(h)


model = TwoHeads().to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
g = torch.Generator().manual_seed(4)
LABEL_WEIGHT = 0.6
torch_xla.sync()
for step in range(12):
    x = torch.randn(16, 10, generator=g).to(device)
    y = torch.randint(0, 3, (16,), generator=g).to(device)
    recon_weight = torch.tensor([[0.3, 0.4, 0.6, 0.7][step // 3]]).to(device)
    logits, again = model(x)
    loss = LABEL_WEIGHT * F.cross_entropy(logits, y) + (recon_weight * F.mse_loss(again, x)).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    torch_xla.sync()
print("loss", round(loss.item(), 3))
