import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset


def credit_table(n, gen):
    num = torch.randn(n, 10, generator=gen)
    cat = torch.randint(0, 6, (n, 4), generator=gen)
    signal = num[:, 0] * num[:, 1] + 0.5 * (cat[:, 0] == 2) - 0.4 * num[:, 2] + 0.3 * cat[:, 1] / 6
    label = (signal + 0.3 * torch.randn(n, generator=gen) > 0).float()
    return TensorDataset(num, cat, label)


class NumericTokens(nn.Module):
    def __init__(self, count, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(count, width) * 0.1)
        self.bias = nn.Parameter(torch.zeros(count, width))

    def forward(self, x):
        return x[..., None] * self.weight + self.bias


class TabularTransformer(nn.Module):
    def __init__(self, width=16, depth=1, token_drop=0.3):
        super().__init__()
        self.numeric = NumericTokens(10, width)
        self.embed = nn.Embedding(24, width)
        self.register_buffer("offset", torch.arange(4) * 6)
        self.token_drop = token_drop
        layer = nn.TransformerEncoderLayer(width, 2, width * 2, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, 1)

    def forward(self, num, cat):
        tokens = torch.cat([self.numeric(num), self.embed(cat + self.offset)], 1)
        if self.training and self.token_drop > 0:
            keep = torch.rand(tokens.shape[:2], device=tokens.device) >= self.token_drop
            tokens = tokens * keep[..., None] / (1 - self.token_drop)
        return self.head(self.body(tokens).mean(1)).squeeze(-1)


class Curriculum:
    """Eases the token dropping from its first to its last value over the run."""

    def __init__(self, model, total, first=0.3, last=0.0):
        self.model, self.total, self.first, self.last = model, total, first, last

    def advance(self, step):
        share = 0.5 * (1 + math.cos(math.pi * step / self.total))
        self.model.token_drop = self.last + (self.first - self.last) * share


def area_under_curve(score, label):
    order = score.argsort()
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order))
    pos = label.sum()
    return ((rank[label == 1].float() + 1).sum() - pos * (pos + 1) / 2) / (pos * (len(label) - pos))


def evaluate(accelerator, model, loader):
    model.eval()
    scores, labels = [], []
    for num, cat, label in loader:
        with torch.no_grad():
            logits = model(num, cat)
        s, l = accelerator.gather_for_metrics((logits, label))
        scores.append(s)
        labels.append(l)
    model.train()
    return area_under_curve(torch.cat(scores), torch.cat(labels)).item()


def main(epochs=8, batch=64):
    set_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    gen = torch.Generator().manual_seed(3)
    train = DataLoader(credit_table(2048, gen), batch_size=batch, shuffle=True, drop_last=True)
    test = DataLoader(credit_table(512, gen), batch_size=batch)
    model = TabularTransformer()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 6e-3, total_steps=epochs * len(train))
    model, opt, train, test, sched = accelerator.prepare(model, opt, train, test, sched)
    curriculum = Curriculum(accelerator.unwrap_model(model), epochs * len(train))
    net = torch.compile(model, backend="aot_eager", dynamic=False)
    step = 0
    for epoch in range(epochs):
        began, losses = time.time(), []
        for num, cat, label in train:
            curriculum.advance(step)
            with accelerator.accumulate(model):
                loss = F.binary_cross_entropy_with_logits(net(num, cat), label)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                sched.step()
                opt.zero_grad()
            losses.append(loss.detach())
            step += 1
        auc = evaluate(accelerator, net, test)
        accelerator.print(f"epoch {epoch} loss {torch.stack(losses).mean():.4f} auc {auc:.3f} "
                          f"drop {accelerator.unwrap_model(model).token_drop:.2f} {time.time() - began:.1f}s")


if __name__ == "__main__":
    main()
