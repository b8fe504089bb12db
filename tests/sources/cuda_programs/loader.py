"""A training loop that waits for its data: the dataset makes each sample in Python."""

import torch
from measured import measured, python
from torch import nn
from torch.utils.data import DataLoader, Dataset

model = nn.Sequential(*(nn.Sequential(nn.Linear(4096, 4096), nn.GELU()) for _ in range(4))).cuda()
optimizer = torch.optim.SGD(model.parameters(), 1e-4)


class Samples(Dataset):
    def __len__(self):
        return 320

    def __getitem__(self, index):
        python(1.5)  # <-- what takes long
        return torch.full((4096,), index / 320)


def train(truth=None, turns=40):
    for turn, x in enumerate(DataLoader(Samples(), batch_size=8, num_workers=0)):
        if turn == turns:
            break
        loss = model(x.cuda().repeat(256, 1)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


train(turns=3)
with measured() as truth:
    train(truth)
