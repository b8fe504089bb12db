"""Every third step also computes the validation loss, before the step's barrier."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()
model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 1)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
g = torch.Generator().manual_seed(3)
x_val = torch.randn(32, 12, generator=g).to(device)
y_val = x_val.sum(1, keepdim=True)
val_loss = torch.zeros((), device=device)
xm.mark_step()


def validate():
    model.eval()
    with torch.no_grad():
        loss = F.mse_loss(model(x_val), y_val)
    model.train()
    return loss


for step in range(12):
    x = torch.randn(16, 12, generator=g).to(device)
    opt.zero_grad()
    loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
    loss.backward()
    opt.step()
    if step % 3 == 2:
        val_loss = validate()
    xm.mark_step()
print("validation loss", round(val_loss.item(), 3))
