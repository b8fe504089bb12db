"""Phoneme recognition from spectrogram frames: utterances of different lengths, a convolution and attention."""
import argparse
import logging

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("phonemes")


class Utterances(Dataset):
    def __init__(self, count, bands, phonemes, seed):
        generator = torch.Generator().manual_seed(seed)
        self.items = []
        for _ in range(count):
            length = int(torch.randint(24, 72, (1,), generator=generator))
            labels = torch.randint(1, phonemes, (length,), generator=generator)
            frames = torch.randn(length, bands, generator=generator) * 0.3
            frames += nn.functional.one_hot(labels, bands)
            self.items.append((frames, labels))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def collate(items):
    frames = pad_sequence([f for f, _ in items], batch_first=True)
    labels = pad_sequence([p for _, p in items], batch_first=True, padding_value=-100)
    return frames, labels


class Recognizer(nn.Module):
    def __init__(self, bands, width, phonemes):
        super().__init__()
        self.conv = nn.Conv1d(bands, width, 5, padding=2)
        self.norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.out = nn.Linear(width, phonemes)

    def forward(self, frames):
        h = self.conv(frames.transpose(1, 2)).transpose(1, 2)
        h = self.norm(torch.relu(h))
        scores = self.query(h) @ h.transpose(1, 2) / h.shape[-1] ** 0.5
        return self.out(h + scores.softmax(-1) @ h)


def error_rate(model, loader):
    wrong = total = 0
    with torch.inference_mode():
        for frames, labels in loader:
            guess = model(frames).argmax(-1)
            keep = labels != -100
            wrong += ((guess != labels) & keep).sum().item()
            total += keep.sum().item()
    return wrong / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bands", type=int, default=40)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(1)
    train = DataLoader(Utterances(160, args.bands, 30, 1), args.batch, shuffle=True, collate_fn=collate, drop_last=True)
    test = DataLoader(Utterances(16, args.bands, 30, 2), args.batch, collate_fn=collate)
    net = Recognizer(args.bands, 32, 30)
    model = torch.compile(net, dynamic=False, backend="aot_eager")
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        for step, (frames, labels) in enumerate(train):
            loss = nn.functional.cross_entropy(model(frames).flatten(0, 1), labels.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % 10 == 0:
                log.info("epoch %d step %d loss %.3f", epoch, step, loss.item())
        log.info("epoch %d error rate %.3f", epoch, error_rate(net, test))


if __name__ == "__main__":
    main()
