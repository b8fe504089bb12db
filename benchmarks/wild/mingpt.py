"""Train as minGPT does: a Trainer class with callbacks, an endless iterator over a loader, a log every few steps."""

import time
from collections import defaultdict

import torch
from _session import compiled, device, finish, sync
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset
from torch.utils.data.dataloader import DataLoader


class SortDataset(Dataset):
    """Sort six digits: the input and then the sorted digits are one sequence."""

    def __len__(self):
        return 1000

    def __getitem__(self, idx):
        inp = torch.randint(3, (6,), generator=torch.Generator().manual_seed(idx))
        cat = torch.cat((inp, inp.sort()[0]))
        y = cat[1:].clone()
        y[:5] = -1
        return cat[:-1].clone(), y


class GPT(nn.Module):
    def __init__(self, width=24, layers=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(3, width), nn.Parameter(torch.zeros(11, width))
        layer = {"dim_feedforward": 48, "dropout": 0.0, "batch_first": True, "norm_first": True}
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(width, 2, **layer) for _ in range(layers))
        self.head = nn.Linear(width, 3)

    def forward(self, idx, targets):
        x = self.tok(idx) + self.pos
        mask = nn.Transformer.generate_square_subsequent_mask(idx.size(1), device=idx.device)
        for block in self.blocks:
            x = block(x, src_mask=mask)
        logits = self.head(x)
        return logits, F.cross_entropy(logits.view(-1, 3), targets.view(-1), ignore_index=-1)


class Trainer:
    def __init__(self, model, dataset, max_iters):
        self.model, self.dataset, self.max_iters = model.to(device), dataset, max_iters
        self.callbacks = defaultdict(list)

    def add_callback(self, onevent, callback):
        self.callbacks[onevent].append(callback)

    def trigger_callbacks(self, onevent):
        for callback in self.callbacks.get(onevent, []):
            callback(self)

    def run(self):
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=5e-4)
        model = compiled(self.model)
        loader = DataLoader(self.dataset, batch_size=16, shuffle=False)
        self.iter_num, self.iter_time = 0, time.time()
        data_iter = iter(loader)
        while True:
            try:
                batch = next(data_iter)
            except StopIteration:
                data_iter = iter(loader)
                batch = next(data_iter)
            x, y = [t.to(device) for t in batch]
            _, self.loss = model(x, y)
            model.zero_grad(set_to_none=True)
            self.loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            sync()
            self.trigger_callbacks("on_batch_end")
            self.iter_num += 1
            tnow = time.time()
            self.iter_dt, self.iter_time = tnow - self.iter_time, tnow
            if self.iter_num >= self.max_iters:
                break


def batch_end_callback(trainer):
    history.append(trainer.loss.detach())
    if trainer.iter_num % 10 == 0:
        print(f"iter {trainer.iter_num}: train loss {trainer.loss.item():.5f}")


torch.manual_seed(3407)
history = []
trainer = Trainer(GPT(), SortDataset(), max_iters=40)
trainer.add_callback("on_batch_end", batch_end_callback)
trainer.run()
finish(history)
