"""Double DQN from a fixed replay: the target network is copied every eighth step, after the barrier."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()
g = torch.Generator().manual_seed(1)
online = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 4)).to(device)
target = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 4)).to(device).requires_grad_(False)
target.load_state_dict(online.state_dict())
opt = torch.optim.Adam(online.parameters(), lr=1e-3)
states = torch.randn(256, 6, generator=g)
xm.mark_step()
for step in range(32):
    rows = torch.randint(0, 255, (32,), generator=g)
    s, n = states[rows].to(device), states[rows + 1].to(device)
    a = torch.randint(0, 4, (32, 1), generator=g).to(device)
    with torch.no_grad():
        choice = online(n).argmax(1, keepdim=True)
        q = s[:, :1] + 0.97 * target(n).gather(1, choice)
    loss = F.smooth_l1_loss(online(s).gather(1, a), q)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(online.parameters(), 1.0)
    opt.step()
    xm.mark_step()
    if step % 8 == 7:
        with torch.no_grad():
            for p, t in zip(online.parameters(), target.parameters()):
                t.copy_(p)
        xm.mark_step()
print("loss", round(loss.item(), 4))
