"""StepTrace and Trace scopes around the parts of a step; reads at the end only."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.profiler as xp

torch.manual_seed(0)
device = xm.xla_device()
model = nn.Sequential(nn.Conv1d(4, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(112, 3)).to(device)
opt = torch.optim.RMSprop(model.parameters(), lr=1e-3)
g = torch.Generator().manual_seed(3)
running = torch.zeros((), device=device)
xm.mark_step()
for step in range(20):
    with xp.StepTrace("train", step_num=step):
        with xp.Trace("batch"):
            x = torch.randn(16, 4, 16, generator=g).to(device)
            y = torch.randint(0, 3, (16,), generator=g).to(device)
        with xp.Trace("forward"):
            loss = F.cross_entropy(model(x), y)
        with xp.Trace("backward"):
            opt.zero_grad()
            loss.backward()
        with xp.Trace("optimizer"):
            opt.step()
            running += loss.detach()
print("mean loss", round(running.item() / 20, 3))
