"""Value network for chess positions: learn the sign of a material-and-king evaluation from random positions.

Positions come as FEN, as in the usual dumps; the network sees 14 planes of 8x8.
"""
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm
from torch.utils.data import DataLoader, Dataset

PIECES = "PNBRQKpnbrqk"
VALUE = dict(zip(PIECES, [1, 3, 3, 5, 9, 0, -1, -3, -3, -5, -9, 0]))
KNIGHT = [(1, 2), (2, 1), (-1, 2), (-2, 1), (1, -2), (2, -1), (-1, -2), (-2, -1)]
LINES = {"B": [(1, 1), (1, -1), (-1, 1), (-1, -1)], "R": [(1, 0), (-1, 0), (0, 1), (0, -1)]}
LINES["Q"] = LINES["B"] + LINES["R"]


def random_fen(rng):
    squares = rng.sample(range(64), rng.randint(12, 26))
    board = [None] * 64
    board[squares[0]], board[squares[1]] = "K", "k"
    for s in squares[2:]:
        board[s] = rng.choice("PPPNBRQpppnbrq")
    rows = []
    for r in range(8):
        row, gap = "", 0
        for piece in board[8 * r:8 * r + 8]:
            if piece is None:
                gap += 1
                continue
            row += (str(gap) if gap else "") + piece
            gap = 0
        rows.append(row + (str(gap) if gap else ""))
    return "/".join(rows) + (" w" if rng.random() < 0.5 else " b")


class Board:
    def __init__(self, fen):
        placement, self.turn = fen.split()
        self.at = {}
        for r, row in enumerate(placement.split("/")):
            c = 0
            for ch in row:
                if ch.isdigit():
                    c += int(ch)
                else:
                    self.at[r, c] = ch
                    c += 1

    def attacks(self, square):
        piece = self.at[square].upper()
        r, c = square
        if piece == "P":
            d = -1 if self.at[square].isupper() else 1
            steps = [(d, -1), (d, 1)]
        elif piece == "N":
            steps = KNIGHT
        elif piece == "K":
            steps = LINES["Q"]
        else:
            for dr, dc in LINES[piece]:
                y, x = r + dr, c + dc
                while 0 <= y < 8 and 0 <= x < 8:
                    yield y, x
                    if (y, x) in self.at:
                        break
                    y, x = y + dr, x + dc
            return
        for dr, dc in steps:
            if 0 <= r + dr < 8 and 0 <= c + dc < 8:
                yield r + dr, c + dc

    def planes(self):
        out = np.zeros((14, 8, 8), np.float32)
        for (r, c), piece in self.at.items():
            out[PIECES.index(piece), r, c] = 1
            for y, x in self.attacks((r, c)):
                out[12 if piece.isupper() else 13, y, x] += 0.25
        return out if self.turn == "w" else -out

    def advantage(self):
        total = sum(VALUE[p] for p in self.at.values())
        contact = sum(1 if self.at[s].isupper() else -1 for s in self.at for t in self.attacks(s) if t in self.at)
        return 1.0 if (total + 0.3 * contact) * (1 if self.turn == "w" else -1) > 0 else 0.0


class Positions(Dataset):
    def __init__(self, fens):
        self.fens = fens
        self.labels = [Board(f).advantage() for f in fens]

    def __len__(self):
        return len(self.fens)

    def __getitem__(self, i):
        board = Board(self.fens[i])
        return torch.from_numpy(board.planes()), torch.tensor(self.labels[i])


class ValueNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.stem = nn.Conv2d(14, width, 3, padding=1)
        self.body = nn.ModuleList([nn.Conv2d(width, width, 3, padding=1) for _ in range(2)])
        self.out = nn.Linear(width * 64, 1)

    def forward(self, x):
        x = F.relu(self.stem(x))
        for conv in self.body:
            x = F.relu(x + conv(x))
        return self.out(x.flatten(1))[:, 0]


def main(epochs=24, size=6144, batch=128):
    rng = random.Random(3)
    torch.manual_seed(3)
    device = torch_xla.device()
    loader = DataLoader(Positions([random_fen(rng) for _ in range(size)]), batch, shuffle=True, drop_last=True)
    held_out = DataLoader(Positions([random_fen(rng) for _ in range(512)]), 512)
    model = ValueNet().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        loss_sum = torch.zeros((), device=device)
        for planes, label in loader:
            planes, label = planes.to(device), label.to(device)
            optimizer.zero_grad()
            loss = F.binary_cross_entropy_with_logits(model(planes), label)
            loss.backward()
            xm.optimizer_step(optimizer)
            loss_sum += loss.detach()
            torch_xla.sync()
        print(f"epoch {epoch:2d}  loss {loss_sum.item() / len(loader):.4f}")
    with torch.no_grad():
        for planes, label in held_out:
            right = ((model(planes.to(device)) > 0).float() == label.to(device)).float().mean()
            print(f"held out: {right.item():.3f}")


if __name__ == "__main__":
    main()
