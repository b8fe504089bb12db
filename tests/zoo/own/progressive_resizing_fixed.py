"""Progressive resizing: training begins with coarse images, all of one size."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()
SIZES = {0: 8, 5: 12, 10: 16}


def photos(steps):
    g = torch.Generator().manual_seed(7)
    size = 8
    for step in range(steps):
        size = SIZES.get(step, size)
        full = torch.rand(6, 3, 16, 16, generator=g)
        yield F.interpolate(F.interpolate(full, size=(size, size)), size=(16, 16)), torch.randint(0, 4, (6,), generator=g)


net = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 4)
).to(device)
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
torch_xla.sync()
for images, labels in photos(15):
    images, labels = images.to(device), labels.to(device)
    opt.zero_grad()
    loss = F.cross_entropy(net(images), labels)
    loss.backward()
    opt.step()
    torch_xla.sync()
print("loss", round(loss.item(), 3))
