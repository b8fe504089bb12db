"""A thread of the program reads ahead in pure Python: it and the training loop share the interpreter's lock."""
import queue
import random
import threading
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
import torch_xla

torch.manual_seed(0)
device = torch_xla.device()


class Sentences(Dataset):
    def __init__(self, count):
        dice = random.Random(0)
        self.lines = [" ".join(str(dice.random()) * 24 for _ in range(16)) for _ in range(count)]

    def __len__(self):
        return len(self.lines)

    def transform(self, line):
        hashed = []
        for word in line.split():
            code = 7
            for letter in word:
                code = (code * 31 + ord(letter)) % 1009
            hashed.append(code)
        return torch.tensor(hashed)

    def __getitem__(self, i):
        return self.transform(self.lines[i]), len(self.lines[i]) % 4


def read_ahead(loader, batches):
    for batch in loader:
        batches.put(batch)
    batches.put(None)


model = nn.Sequential(nn.Embedding(1009, 32), nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 4)).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
batches = queue.Queue(maxsize=4)
loader = DataLoader(Sentences(6144), batch_size=64)
threading.Thread(target=read_ahead, args=(loader, batches), name="reader", daemon=True).start()
torch_xla.sync()
while (batch := batches.get()) is not None:
    ids, labels = batch[0].to(device), batch[1].to(device)
    opt.zero_grad()
    loss = F.cross_entropy(model(ids), labels)
    loss.backward()
    opt.step()
    torch_xla.sync()
print("loss", round(loss.item(), 3))
