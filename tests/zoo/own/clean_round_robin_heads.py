"""Three tasks in turns, each with a head of its own on a shared body: three graphs, met in the first three steps."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
body = nn.Sequential(nn.Linear(12, 32), nn.ReLU())
heads = nn.ModuleDict({"a": nn.Linear(32, 2), "b": nn.Linear(32, 5), "c": nn.Linear(32, 1)})
model = nn.ModuleDict({"body": body, "heads": heads}).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
g = torch.Generator().manual_seed(1)
torch_xla.sync()
for step in range(24):
    task = "abc"[step % 3]
    x = torch.randn(8, 12, generator=g).to(device)
    out = model["heads"][task](model["body"](x))
    loss = F.mse_loss(out, x[:, :1]) if task == "c" else F.cross_entropy(out, x[:, : out.shape[1]].argmax(1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    torch_xla.sync()
print("loss", round(loss.item(), 3))
