"""Sentiment of short synthetic reviews: bag of n-gram convolutions with curriculum dropout.

Curriculum dropout (Morerio et al., 2017): the network begins with no dropout,
and the rate grows with the number of updates seen towards its final value.
"""
import argparse
import math
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--reviews", type=int, default=1920)
parser.add_argument("--length", type=int, default=40)
parser.add_argument("--vocab", type=int, default=600)
parser.add_argument("--batch", type=int, default=48)
parser.add_argument("--width", type=int, default=48)
parser.add_argument("--dropout", type=float, default=0.4)
parser.add_argument("--gamma", type=float, default=0.03)
args = parser.parse_args()
torch.manual_seed(11)

PAD = 0


def synthetic_reviews(count):
    """Words 1..40 are positive, 41..80 negative, 'not' (81) flips the next word."""
    words = torch.randint(82, args.vocab, (count, args.length))
    lengths = torch.randint(args.length // 2, args.length + 1, (count,))
    sign = torch.randint(0, 2, (count,)) * 2 - 1
    for _ in range(4):
        where = (torch.rand(count) * (lengths - 2)).long()
        flip = torch.rand(count) < 0.3
        wanted = torch.where(flip, -sign, sign)
        word = torch.where(wanted > 0, torch.randint(1, 41, (count,)), torch.randint(41, 81, (count,)))
        rows = torch.arange(count)
        words[rows, where + 1] = word
        words[rows[flip], where[flip]] = 81
    words[torch.arange(args.length)[None] >= lengths[:, None]] = PAD
    return words, (sign > 0).long()


class Branch(nn.Module):
    def __init__(self, width, span):
        super().__init__()
        self.conv = nn.Conv1d(width, width, span, padding=span // 2)
        self.norm = nn.BatchNorm1d(width)
        self.drop = nn.Dropout(0.0)

    def forward(self, x):
        return self.drop(torch.relu(self.norm(self.conv(x)))).amax(-1)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(args.vocab, args.width, padding_idx=PAD)
        self.word_drop = nn.Dropout(0.0)
        self.branches = nn.ModuleList([Branch(args.width, span) for span in (1, 3, 5)])
        self.hidden = nn.Linear(3 * args.width, args.width)
        self.drop = nn.Dropout(0.0)
        self.out = nn.Linear(args.width, 2)

    def forward(self, words):
        x = self.word_drop(self.embed(words)).transpose(1, 2)
        x = torch.cat([branch(x) for branch in self.branches], -1)
        return self.out(self.drop(torch.relu(self.hidden(x))))


class CurriculumDropout:
    """Sets the rate of every dropout layer of a model from the update number."""

    def __init__(self, model, final, gamma):
        self.layers = [m for m in model.modules() if isinstance(m, nn.Dropout)]
        self.final, self.gamma, self.updates = final, gamma, 0

    def step(self):
        rate = self.final * (1.0 - math.exp(-self.gamma * self.updates))
        for layer in self.layers:
            layer.p = rate
        self.updates += 1
        return rate


words, labels = synthetic_reviews(args.reviews)
test_words, test_labels = synthetic_reviews(480)
model = Classifier()
forward = torch.compile(model, backend="aot_eager")
curriculum = CurriculumDropout(model, args.dropout, args.gamma)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)

for epoch in range(args.epochs):
    began = time.perf_counter()
    model.train()
    order = torch.randperm(args.reviews)
    losses = []
    for batch in order.split(args.batch):
        rate = curriculum.step()
        loss = nn.functional.cross_entropy(forward(words[batch]), labels[batch], label_smoothing=0.05)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    model.eval()
    with torch.no_grad():
        right = torch.cat([forward(w).argmax(-1) for w in test_words.split(args.batch)]) == test_labels
    print(f"epoch {epoch}: loss {torch.stack(losses).mean():.3f}  dropout {rate:.2f}  "
          f"accuracy {right.float().mean():.3f}  {time.perf_counter() - began:.1f} s")
