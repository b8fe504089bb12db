"""Audio clips padded on the host to 10, 20 or 30 frames: three graphs, each used throughout."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()
g = torch.Generator().manual_seed(1)
BUCKETS = (10, 20, 30)


def clip_batches(n):
    for _ in range(n):
        frames = int(torch.randint(3, 31, (1,), generator=g))
        size = next(size for size in BUCKETS if size >= frames)
        clip = torch.randn(6, 5, frames, generator=g)
        yield F.pad(clip, (0, size - frames)), torch.randint(0, 2, (6,), generator=g)


model = nn.Sequential(nn.Conv1d(5, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 2)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
for clip, label in clip_batches(40):
    clip, label = clip.to(device), label.to(device)
    loss = F.cross_entropy(model(clip), label)
    opt.zero_grad()
    loss.backward()
    opt.step()
    xm.mark_step()
print("loss", round(loss.item(), 3))
