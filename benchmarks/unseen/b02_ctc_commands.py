"""CTC acoustic model for spoken command strings."""
import logging
import random
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

import torch_xla
import torch_xla.core.xla_model as xm

logger = logging.getLogger(__name__)


@dataclass
class Config:
    mels: int = 20
    hidden: int = 32
    vocab: int = 12
    batch: int = 6
    steps: int = 12
    lr: float = 2e-3


class Utterances(Dataset):
    def __init__(self, n, cfg, seed=3):
        rng = random.Random(seed)
        g = torch.Generator().manual_seed(seed)
        self.items = []
        for _ in range(n):
            symbols = rng.randint(2, 6)
            frames = rng.randint(20, 44)
            target = torch.randint(1, cfg.vocab, (symbols,), generator=g)
            self.items.append((torch.randn(frames, cfg.mels, generator=g), target))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(items):
    feats, targets = zip(*items)
    frame_lens = torch.tensor([f.shape[0] for f in feats])
    target_lens = torch.tensor([t.shape[0] for t in targets])
    x = nn.utils.rnn.pad_sequence(feats, batch_first=True)
    y = torch.zeros(len(targets), int(target_lens.max()), dtype=torch.long)
    for row, t in enumerate(targets):
        y[row, : t.shape[0]] = t
    return x, frame_lens, y, target_lens


class Acoustic(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.front = nn.Conv1d(cfg.mels, cfg.hidden, 5, stride=2, padding=2)
        self.mid = nn.Conv1d(cfg.hidden, cfg.hidden, 9, padding=4, groups=cfg.hidden)
        self.point = nn.Linear(cfg.hidden, cfg.hidden)
        self.norm = nn.LayerNorm(cfg.hidden)
        self.out = nn.Linear(cfg.hidden, cfg.vocab)

    def forward(self, x):
        h = F.gelu(self.front(x.transpose(1, 2)))
        h = (h + self.mid(h)).transpose(1, 2)
        h = self.norm(h + F.gelu(self.point(h)))
        return self.out(h).log_softmax(-1)


def greedy(logp):
    ids = logp.argmax(-1)
    keep = (ids != 0) & (ids != F.pad(ids[:, :-1], (1, 0), value=-1))
    return keep.sum(1)


def main():
    cfg = Config()
    torch.manual_seed(0)
    device = xm.xla_device()
    data = DataLoader(Utterances(cfg.batch * cfg.steps, cfg), batch_size=cfg.batch, shuffle=True, drop_last=True,
                      collate_fn=collate)
    model = Acoustic(cfg).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr)
    for step, (x, frame_lens, y, target_lens) in enumerate(data):
        x, y = x.to(device), y.to(device)
        out_lens = ((frame_lens + 1) // 2).to(device)
        target_lens = target_lens.to(device)
        logp = model(x)
        loss = F.ctc_loss(logp.transpose(0, 1), y, out_lens, target_lens, zero_infinity=True)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        xm.mark_step()
        if step % 6 == 5:
            logger.info("step %d loss %.3f emitted %s", step, loss.item(), greedy(logp.detach()).tolist())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    main()
