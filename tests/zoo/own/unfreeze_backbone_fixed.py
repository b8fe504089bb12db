"""Fine-tuning: the head is trained for 6 steps, then the backbone is unfrozen as well."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()
UNFREEZE_AT = 6


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(14, 28), nn.ReLU(), nn.Linear(28, 28), nn.ReLU())
        self.head = nn.Linear(28, 3)

    def forward(self, x):
        return self.head(self.backbone(x))


model = Net().to(device)
backbone = {"params": model.backbone.parameters(), "lr": 1e-8}
opt = torch.optim.SGD([backbone, {"params": model.head.parameters()}], lr=0.1)
g = torch.Generator().manual_seed(2)
xm.mark_step()
for step in range(14):
    if step == UNFREEZE_AT:
        opt.param_groups[0]["lr"] = 0.09
    x = torch.randn(16, 14, generator=g).to(device)
    y = torch.randint(0, 3, (16,), generator=g).to(device)
    loss = F.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    xm.mark_step()
print("loss", round(loss.item(), 3))
