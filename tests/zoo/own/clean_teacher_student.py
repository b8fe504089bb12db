"""Mean teacher: the teacher starts as a copy of the student and follows it, one lerp per step."""
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()
student = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 3)).to(device)
teacher = copy.deepcopy(student).requires_grad_(False)
teacher.load_state_dict(student.state_dict())
opt = torch.optim.SGD(student.parameters(), lr=0.1)
g = torch.Generator().manual_seed(7)
xm.mark_step()
for step in range(16):
    x = torch.randn(16, 10, generator=g).to(device)
    noisy = x + 0.1 * torch.randn_like(x)
    opt.zero_grad()
    loss = F.mse_loss(student(noisy).softmax(1), teacher(x).softmax(1)) + 0.01 * student(x).pow(2).mean()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for t, s in zip(teacher.parameters(), student.parameters()):
            t.lerp_(s, 0.05)
    xm.mark_step()
print("loss", round(loss.item(), 5))
