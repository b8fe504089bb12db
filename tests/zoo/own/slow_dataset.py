"""Images are decoded one by one in the training process; the loader has no workers."""
import time
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
device = xm.xla_device()


class Photos(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        time.sleep(0.006)  # JPEG decoding
        return torch.rand(3, 8, 8, generator=g), i % 4


model = nn.Sequential(nn.Flatten(), nn.Linear(192, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
loader = DataLoader(Photos(), batch_size=8)
xm.mark_step()
for epoch in range(2):
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        opt.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        xm.optimizer_step(opt)
        xm.mark_step()
print("loss", round(loss.item(), 3))
