"""Sentiment classifier: each batch is padded to its own longest sentence."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
import torch_xla
import torch_xla.core.xla_model as xm

torch.manual_seed(0)
LENGTHS = [12, 9, 12, 7, 17, 14, 11, 10, 9, 8, 9, 6, 12, 11, 10, 12, 17, 16, 3, 5, 9, 4, 5, 6]


class Reviews(Dataset):
    def __len__(self):
        return len(LENGTHS)

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.randint(1, 100, (LENGTHS[i],), generator=g), i % 2


def collate(batch):
    ids = torch.zeros(len(batch), 20, dtype=torch.long)
    for row, (tokens, _) in zip(ids, batch):
        row[: len(tokens)] = tokens
    return ids, torch.tensor([label for _, label in batch])


class Classifier(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.emb = nn.Embedding(100, d, padding_idx=0)
        self.head = nn.Linear(d, 2)

    def forward(self, ids):
        mask = (ids != 0).unsqueeze(-1)
        h = self.emb(ids) * mask
        return self.head(h.sum(1) / mask.sum(1))


device = xm.xla_device()
model = Classifier().to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.3)
loader = DataLoader(Reviews(), batch_size=4, collate_fn=collate)
xm.mark_step()
for epoch in range(2):
    for ids, labels in loader:
        ids, labels = ids.to(device), labels.to(device)
        opt.zero_grad()
        loss = F.cross_entropy(model(ids), labels)
        loss.backward()
        opt.step()
        xm.mark_step()
print("loss", round(loss.item(), 3))
