"""Toy translation (digit strings reversed) with an encoder-decoder and scheduled sampling."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import torch_xla
import torch_xla.distributed.parallel_loader as pl

VOCAB, LENGTH, DIM, BOS = 12, 4, 16, 0


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.mix = nn.Linear(DIM * LENGTH, DIM)

    def forward(self, src):
        return torch.tanh(self.mix(self.embed(src).flatten(1)))


class Decoder(nn.Module):
    def __init__(self, ratio):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.inp = nn.Linear(2 * DIM, DIM)
        self.out = nn.Linear(DIM, VOCAB)
        self.ratio = ratio

    def forward(self, state, target):
        token = torch.full_like(target[:, 0], BOS)
        logits = []
        for t in range(target.shape[1]):
            state = torch.tanh(self.inp(torch.cat([self.embed(token), state], -1)))
            step = self.out(state)
            logits.append(step)
            token = target[:, t] if random.random() < self.ratio else step.argmax(-1)
        return torch.stack(logits, 1)


def corpus(n):
    src = torch.randint(1, VOCAB, (n, LENGTH))
    return TensorDataset(src, src.flip(1))


def main():
    torch.manual_seed(0)
    random.seed(0)
    device = torch_xla.device()
    loader = DataLoader(corpus(148), batch_size=32, shuffle=True)
    encoder, decoder = Encoder().to(device), Decoder(0.7).to(device)
    params = [*encoder.parameters(), *decoder.parameters()]
    opt = torch.optim.SGD(params, lr=0.2)
    for epoch in range(4):
        losses = torch.zeros((), device=device)
        for src, target in pl.MpDeviceLoader(loader, device):
            logits = decoder(encoder(src), target)
            loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses += loss.detach()
        print(f"epoch {epoch} loss {losses.item() / len(loader):.4f}")


if __name__ == "__main__":
    main()
