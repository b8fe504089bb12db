"""The dataset's transform is pure Python, and the device loader's thread runs it: it has the interpreter's lock."""
import random
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
import torch_xla
import torch_xla.distributed.parallel_loader as pl

torch.manual_seed(0)
device = torch_xla.device()


class Sentences(Dataset):
    def __init__(self, count):
        dice = random.Random(0)
        self.lines = [" ".join(str(dice.random()) * 24 for _ in range(16)) for _ in range(count)]
        self.batches = torch.stack([self.transform(line) for line in self.lines]).split(64)  # once, before training

    def __len__(self):
        return len(self.batches)

    def transform(self, line):
        hashed = []
        for word in line.split():
            code = 7
            for letter in word:
                code = (code * 31 + ord(letter)) % 1009
            hashed.append(code)
        return torch.tensor(hashed)

    def __getitem__(self, i):
        return self.batches[i], torch.arange(64) % 4


model = nn.Sequential(nn.Embedding(1009, 32), nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 4)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
loader = pl.MpDeviceLoader(DataLoader(Sentences(6144), batch_size=None), device)
for ids, labels in loader:
    opt.zero_grad()
    loss = F.cross_entropy(model(ids), labels)
    loss.backward()
    opt.step()
print("loss", round(loss.item(), 3))
