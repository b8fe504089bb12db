"""Two stages of progressive resizing: small images first, large ones for the second half; one graph for each."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
STAGES = ((8, 40), (16, 40))


def photos():
    g = torch.Generator().manual_seed(7)
    for size, steps in STAGES:
        for _ in range(steps):
            yield torch.rand(6, 3, size, size, generator=g), torch.randint(0, 4, (6,), generator=g)


net = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 4)
).to(device)
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
torch_xla.sync()
for images, labels in photos():
    images, labels = images.to(device), labels.to(device)
    opt.zero_grad()
    loss = F.cross_entropy(net(images), labels)
    loss.backward()
    opt.step()
    torch_xla.sync()
print("loss", round(loss.item(), 3))
