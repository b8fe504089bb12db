"""Keyword spotting on synthetic chirps with a hand-written light gated recurrent unit (Li-GRU)."""
import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 6
FRAMES = 40
BANDS = 24


def synth(rng, n):
    """Log-filterbank-like images: each class is a chirp with its own start and slope."""
    label = torch.randint(0, CLASSES, (n,), generator=rng)
    t = torch.linspace(0, 1, FRAMES)
    slope = (label.float() - 2.5)[:, None] * 6.0
    start = 8.0 + torch.randn(n, 1, generator=rng)
    centre = start + slope * (t[None] - 0.5) + 4.0
    bands = torch.arange(BANDS).float()
    x = torch.exp(-0.5 * (bands[None, None] - centre[..., None]) ** 2 / 2.0)
    x = x + 0.5 * torch.randn(n, FRAMES, BANDS, generator=rng)
    return x, label


class LiGRU(nn.Module):
    def __init__(self, n_in, n_hidden):
        super().__init__()
        self.n_hidden = n_hidden
        self.w = nn.Linear(n_in, 2 * n_hidden, bias=False)
        self.u = nn.Linear(n_hidden, 2 * n_hidden, bias=False)
        self.norm = nn.LayerNorm(2 * n_hidden)
        nn.init.orthogonal_(self.u.weight)

    def cell(self, wx, h):
        gate = wx + self.u(h)
        a, z = gate.chunk(2, -1)
        z = torch.sigmoid(z)
        return z * h + (1 - z) * torch.relu(a)

    def forward(self, x):
        wx = self.norm(self.w(x))
        h = x.new_zeros(x.shape[0], self.n_hidden)
        out = []
        for t in range(x.shape[1]):
            h = self.cell(wx[:, t], h)
            out.append(h)
        return torch.stack(out, 1)


class Spotter(nn.Module):
    def __init__(self, n_hidden=48):
        super().__init__()
        self.front = nn.Sequential(nn.Linear(BANDS, 32), nn.GELU())
        self.rnn = LiGRU(32, n_hidden)
        self.score = nn.Linear(n_hidden, 1)
        self.head = nn.Linear(n_hidden, CLASSES)

    def forward(self, x):
        h = self.rnn(self.front(x))
        weight = torch.softmax(self.score(h), 1)
        return self.head((weight * h).sum(1))


def confusion(model, data, label):
    with torch.no_grad():
        pred = model(data).argmax(-1)
    table = torch.zeros(CLASSES, CLASSES, dtype=torch.long)
    for a, b in zip(label.tolist(), pred.tolist()):
        table[a, b] += 1
    return table


def main():
    torch.manual_seed(0)
    rng = torch.Generator().manual_seed(5)
    model = Spotter()
    net = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    train_x, train_y = synth(rng, 1280)
    test_x, test_y = synth(rng, 64)
    batch = 64
    for epoch in range(3):
        order = torch.randperm(len(train_x), generator=rng)
        total = 0.0
        for i in range(0, len(order), batch):
            pick = order[i:i + batch]
            x, y = train_x[pick], train_y[pick]
            shift = int(torch.randint(-2, 3, (1,), generator=rng))
            x = torch.roll(x, shift, 1)
            loss = F.cross_entropy(net(x), y, label_smoothing=0.05)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            total += loss.item() * len(pick)
        model.eval()
        table = confusion(model, test_x, test_y)
        model.train()
        acc = table.diagonal().sum().item() / table.sum().item()
        print(f"epoch {epoch}  loss {total / len(order):.4f}  test accuracy {acc:.3f}")
    print(table)


if __name__ == "__main__":
    main()
