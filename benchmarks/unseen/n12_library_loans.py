"""Which book next? Two-tower recommendations from the loans of a public library, day after day, compiled."""
import datetime as dt
import math
import time

import torch
from torch import nn

READERS, BOOKS, SHELVES = 600, 400, 12


class LoanDesk:
    """Readers have a taste for some shelves; the taste drifts over the year."""

    def __init__(self, seed=0):
        self.g = torch.Generator().manual_seed(seed)
        self.taste = torch.randn(READERS, SHELVES, generator=self.g)
        self.shelf = torch.randint(0, SHELVES, (BOOKS,), generator=self.g)
        self.appeal = torch.randn(BOOKS, generator=self.g) * 0.5

    def loans(self, day, count):
        season = torch.cos(torch.arange(SHELVES) / SHELVES * 2 * math.pi + day.timetuple().tm_yday / 58)
        readers = torch.randint(0, READERS, (count,), generator=self.g)
        score = (self.taste[readers] + season)[:, self.shelf] * 1.5 + self.appeal
        books = torch.multinomial(score.softmax(1), 1, generator=self.g).squeeze(1)
        return readers, books


class DriftStatistics(nn.Module):
    """Mean and spread of the embeddings per day of the calendar, to see when the catalogue shifts."""

    def __init__(self):
        super().__init__()
        self.by_day = {}

    def forward(self, x, day):
        with torch.no_grad():
            mean, spread = x.mean(0), x.std()
            count, old_mean, old_spread = self.by_day.get(day, (0, torch.zeros_like(mean), torch.zeros_like(spread)))
            keep = count / (count + 1)
            self.by_day[day] = (count + 1, keep * old_mean + (1 - keep) * mean, keep * old_spread + (1 - keep) * spread)
        return x


class TwoTowers(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.readers = nn.Embedding(READERS, width)
        self.books = nn.Embedding(BOOKS, width)
        self.reader_mlp = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.book_mlp = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.drift = DriftStatistics()
        self.log_scale = nn.Parameter(torch.tensor(1.5))

    def encode_reader(self, readers):
        return nn.functional.normalize(self.reader_mlp(self.readers(readers)), dim=-1)

    def encode_book(self, books):
        return nn.functional.normalize(self.book_mlp(self.books(books)), dim=-1)

    def forward(self, readers, books, day):
        r = self.encode_reader(readers)
        b = self.drift(self.encode_book(books), day)
        logits = r @ b.t() * self.log_scale.exp()
        same = (books[:, None] == books[None, :]) & ~torch.eye(len(books), dtype=torch.bool)
        logits = logits.masked_fill(same, -1e4)
        return nn.functional.cross_entropy(logits, torch.arange(len(books)))


def hit_rate(model, readers, books, k=20):
    """How often the borrowed book is among the k that the desk would have put on the table."""
    hits = 0
    with torch.no_grad():
        for reader, book in zip(readers, books):
            catalogue = model.encode_book(torch.arange(BOOKS))
            scores = catalogue @ model.encode_reader(reader.view(1)).squeeze(0)
            hits += int(book in scores.topk(k).indices)
    return hits / len(readers)


def train_day(loss_of, optimizer, desk, day, batches):
    total = torch.zeros(())
    for _ in range(batches):
        readers, books = desk.loans(day, 64)
        loss = loss_of(readers, books, day.isoformat())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / batches


def largest_shift(drift):
    days = sorted(drift.by_day)
    moves = [(torch.dist(drift.by_day[a][1], drift.by_day[b][1]).item(), b) for a, b in zip(days, days[1:])]
    return max(moves)


def main():
    torch.manual_seed(0)
    desk, model = LoanDesk(), TwoTowers()
    loss_of = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    first = dt.date(2024, 1, 8)
    started = time.time()
    for week in range(3):
        losses = []
        for weekday in range(6):
            day = first + dt.timedelta(days=7 * week + weekday)
            losses.append(train_day(loss_of, optimizer, desk, day, batches=12))
        evening = first + dt.timedelta(days=7 * week + 6)
        rate = hit_rate(model, *desk.loans(evening, 400))
        print(f"week of {first + dt.timedelta(days=7 * week)}: loss {torch.stack(losses).mean().item():.3f}, "
              f"hits at 20: {rate:.3f} ({time.time() - started:.1f} s)")
    shift, day = largest_shift(model.drift)
    print(f"the catalogue shifted most towards {day}: {shift:.3f}")


if __name__ == "__main__":
    main()
