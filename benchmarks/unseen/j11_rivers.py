"""Flood stage at river gauges: routing over the river graph, then a classifier of alert levels."""
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

GAUGES, HOURS, LEVELS, FEATURES = 10, 12, 4, 3
CONFIG = dict(hidden=24, batch=12, epochs=4, lr=3e-3, storms=480, validation=48)


def river_network(seed=0):
    """Each gauge but the outlet drains into one gauge downstream."""
    rng = np.random.default_rng(seed)
    downstream = np.zeros((GAUGES, GAUGES), np.float32)
    for g in range(1, GAUGES):
        downstream[rng.integers(0, g), g] = 1.0
    return torch.from_numpy(downstream)


def simulate_storms(n, network, seed):
    rng = np.random.default_rng(seed)
    rain = rng.gamma(0.4, 2.0, (n, HOURS, GAUGES)).astype(np.float32)
    soil = rng.random((n, 1, GAUGES)).astype(np.float32).repeat(HOURS, 1)
    snow = rng.random((n, 1, GAUGES)).astype(np.float32).repeat(HOURS, 1)
    stage = np.zeros((n, GAUGES), np.float32)
    for t in range(HOURS):
        stage = 0.7 * stage + 0.25 * stage @ network.numpy().T + rain[:, t] * (0.3 + 0.7 * soil[:, t])
    level = np.digitize(stage, np.quantile(stage, [0.6, 0.85, 0.95]))
    return torch.from_numpy(np.stack([rain, soil, snow], -1)), torch.from_numpy(level)


class Routing(nn.Module):
    """One hour of water moving down the network."""

    def __init__(self, network, hidden):
        super().__init__()
        self.register_buffer("network", network)
        self.inflow, self.own, self.upstream = nn.Linear(FEATURES, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.gate = nn.Linear(FEATURES + hidden, hidden)

    def forward(self, state, forcing):
        arriving = torch.einsum("ij,bjh->bih", self.network, state)
        candidate = torch.tanh(self.inflow(forcing) + self.own(state) + self.upstream(arriving))
        gate = torch.sigmoid(self.gate(torch.cat([forcing, state], -1)))
        return state + gate * (candidate - state)


class FloodModel(nn.Module):
    def __init__(self, network, hidden):
        super().__init__()
        self.hidden = hidden
        self.routing = Routing(network, hidden)
        self.head = nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, LEVELS))

    def forward(self, forcing):
        state = forcing.new_zeros(len(forcing), GAUGES, self.hidden)
        for hour in forcing.unbind(1):
            state = self.routing(state, hour)
            torch_xla.sync()
        return self.head(state)


class AlertTable:
    """Confusion of alert levels, observed by predicted."""

    def __init__(self):
        self.table = np.zeros((LEVELS, LEVELS), np.int64)

    def update(self, predicted, observed):
        for p, o in zip(predicted.flatten(), observed.flatten()):
            self.table[o, p] += 1

    def hit_rate(self):
        return self.table.diagonal() / self.table.sum(1).clip(1)


def weights_of(levels):
    count = torch.bincount(levels.flatten(), minlength=LEVELS).float()
    return (count.sum() / (LEVELS * count.clamp_min(1))).sqrt()


def minibatches(data, size, generator=None):
    forcing, level = data
    order = torch.arange(len(forcing)) if generator is None else torch.randperm(len(forcing), generator=generator)
    for lo in range(0, len(order) - size + 1, size):
        index = order[lo:lo + size]
        yield forcing[index], level[index]


def validate(model, data, size, device):
    table = AlertTable()
    model.eval()
    with torch.no_grad():
        for forcing, level in minibatches(data, size):
            logits = model(forcing.to(device))
            table.update(logits.argmax(-1), level)
    model.train()
    return table


def main():
    torch.manual_seed(8)
    device = xm.xla_device()
    network = river_network()
    train_data = simulate_storms(CONFIG["storms"], network, 1)
    valid_data = simulate_storms(CONFIG["validation"], network, 2)
    model = FloodModel(network, CONFIG["hidden"]).to(device)
    criterion = nn.CrossEntropyLoss(weight=weights_of(train_data[1])).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=CONFIG["lr"])
    shuffle = torch.Generator().manual_seed(3)
    for epoch in range(CONFIG["epochs"]):
        started, total, n = time.time(), torch.zeros((), device=device), 0
        for forcing, level in minibatches(train_data, CONFIG["batch"], shuffle):
            logits = model(forcing.to(device))
            loss = criterion(logits.flatten(0, 1), level.flatten().to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
            n += 1
            torch_xla.sync()
        table = validate(model, valid_data, CONFIG["batch"], device)
        print(f"epoch {epoch} loss {total.item() / n:.4f} hits {np.round(table.hit_rate(), 2)} {time.time() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main()
