import gc
import logging

import torch
import torch.nn as nn
import torch.nn.functional as F

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("moe")


class SensorFaults:
    def __init__(self, n, seed, sensors=24, faults=5):
        g = torch.Generator().manual_seed(seed)
        mix = torch.randn(faults, sensors, sensors, generator=torch.Generator().manual_seed(50)) / sensors ** 0.5
        self.y = torch.randint(0, faults, (n,), generator=g)
        base = torch.randn(n, sensors, 1, generator=g)
        self.x = (mix[self.y] @ base).squeeze(-1) + 0.1 * base.squeeze(-1)

    def epoch(self, size, shuffle=True):
        order = torch.randperm(len(self.y)) if shuffle else torch.arange(len(self.y))
        for chunk in order.split(size):
            if len(chunk) == size:
                yield self.x[chunk], self.y[chunk]


class Expert(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class SparseLayer(nn.Module):
    def __init__(self, dim, experts):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.gate = nn.Linear(dim, experts)
        self.experts = nn.ModuleList(Expert(dim) for _ in range(experts))

    def forward(self, x):
        h = self.norm(x)
        weight, choice = self.gate(h).softmax(-1).max(-1)
        out = torch.zeros_like(h)
        for e, expert in enumerate(self.experts):
            out = out + expert(h) * (weight * (choice == e)).unsqueeze(-1)
        load = F.one_hot(choice, len(self.experts)).float().mean(0)
        return x + out, load.square().sum() * len(self.experts)


class FaultModel(nn.Module):
    def __init__(self, sensors=24, dim=32, layers=2, experts=4, faults=5):
        super().__init__()
        self.stem = nn.Linear(sensors, dim)
        self.layers = nn.ModuleList(SparseLayer(dim, experts) for _ in range(layers))
        self.head = nn.Linear(dim, faults)

    def forward(self, x):
        h, balance = self.stem(x), 0.0
        for layer in self.layers:
            h, b = layer(h)
            balance = balance + b
        return self.head(h), balance


def release_memory():
    gc.collect()
    torch.compiler.reset()


def validate(model, data, size):
    model.eval()
    right, seen = 0, 0
    with torch.no_grad():
        for x, y in data.epoch(size, shuffle=False):
            right = right + (model(x)[0].argmax(1) == y).sum()
            seen += size
    model.train()
    release_memory()
    return right.item() / seen


def main(epochs=5, size=64):
    torch.manual_seed(6)
    train, test = SensorFaults(3200, 1), SensorFaults(640, 2)
    net = FaultModel()
    model = torch.compile(net, backend="aot_eager")
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    for epoch in range(epochs):
        running = torch.zeros(())
        for n, (x, y) in enumerate(train.epoch(size), 1):
            logits, balance = model(x)
            loss = F.cross_entropy(logits, y) + 0.01 * balance
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.detach()
        log.info("epoch %d loss %.4f accuracy %.3f", epoch, running.item() / n, validate(model, test, size))


if __name__ == "__main__":
    main()
