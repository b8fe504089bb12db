"""Line loadings in power grids: a message passing network over random grids with single outages, batched as one graph."""
import logging
import sys
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import torch_xla
import torch_xla.core.xla_model as xm

logger = logging.getLogger(__name__)
BUSES, LINES = 20, 32


class Grid:
    __slots__ = ("x", "edge_index", "edge_attr", "y", "energized")

    def __init__(self, rng):
        tree = np.stack([np.arange(1, BUSES), [rng.integers(0, i) for i in range(1, BUSES)]])
        extra = rng.integers(0, BUSES, (2, LINES - BUSES + 1))
        self.edge_index = np.concatenate([tree, extra], 1)
        reactance = rng.uniform(0.1, 0.5, LINES)
        self.energized = np.ones(LINES, bool)
        if rng.random() < 0.5:
            self.energized[rng.integers(LINES)] = False
        susceptance = self.energized / reactance
        injection = rng.normal(size=BUSES)
        injection -= injection.mean()
        a, b = self.edge_index
        lap = np.zeros((BUSES, BUSES))
        np.add.at(lap, (a, a), susceptance)
        np.add.at(lap, (b, b), susceptance)
        np.add.at(lap, (a, b), -susceptance)
        np.add.at(lap, (b, a), -susceptance)
        theta = np.linalg.pinv(lap) @ injection
        self.y = (susceptance * (theta[a] - theta[b])).astype(np.float32)
        self.x = np.stack([injection, np.abs(injection)], 1).astype(np.float32)
        self.edge_attr = np.stack([reactance, self.energized], 1).astype(np.float32)


def collate(grids):
    offset = np.arange(len(grids)) * BUSES
    out = {k: torch.from_numpy(np.concatenate([getattr(g, k) for g in grids])) for k in ("x", "edge_attr", "y", "energized")}
    out["edge_index"] = torch.from_numpy(np.concatenate([g.edge_index + o for g, o in zip(grids, offset)], 1))
    out["batch"] = torch.arange(len(grids)).repeat_interleave(BUSES)
    return out


def scatter_mean(src, index, dim_size=None):
    if dim_size is None:
        dim_size = int(index.max()) + 1
    total = src.new_zeros(dim_size, src.shape[1]).index_add_(0, index, src)
    count = src.new_zeros(dim_size).index_add_(0, index, torch.ones_like(src[:, 0]))
    return total / count.clamp(min=1)[:, None]


class MessageLayer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(3 * d, d), nn.ReLU())
        self.update = nn.Linear(2 * d, d)

    def forward(self, h, e, edge_index):
        src, dst = edge_index
        m = self.message(torch.cat([h[src], h[dst], e], 1))
        agg = scatter_mean(torch.cat([m, m]), torch.cat([dst, src]), len(h))
        return h + torch.relu(self.update(torch.cat([h, agg], 1)))


class LoadingNet(nn.Module):
    def __init__(self, d=24, layers=1):
        super().__init__()
        self.node, self.edge = nn.Linear(2, d), nn.Linear(2, d)
        self.layers = nn.ModuleList(MessageLayer(d) for _ in range(layers))
        self.pool = nn.Linear(d, d)
        self.head = nn.Sequential(nn.Linear(4 * d, d), nn.ReLU(), nn.Linear(d, 1))

    def forward(self, x, edge_index, edge_attr, batch):
        h, e = self.node(x), self.edge(edge_attr)
        for layer in self.layers:
            h = layer(h, e, edge_index)
        g = self.pool(scatter_mean(h, batch))
        a, b = edge_index
        return self.head(torch.cat([h[a], h[b], e, g[batch[a]]], 1)).squeeze(1)


class LossMonitor:
    """All losses of the run, and their mean over the last ones."""

    def __init__(self):
        self.values = []

    def add(self, loss):
        self.values.append(loss.detach())

    def recent(self, n):
        return torch.stack(self.values[-n:]).mean().item()


def train_step(model, opt, batch, monitor):
    pred = model(batch["x"], batch["edge_index"], batch["edge_attr"], batch["batch"])
    live = batch["energized"]
    loss = F.huber_loss(pred[live], batch["y"][live])
    opt.zero_grad()
    loss.backward()
    opt.step()
    monitor.add(loss)
    xm.mark_step()


def main(argv):
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    steps = int(argv[0]) if argv else 60
    torch.manual_seed(9)
    rng = np.random.default_rng(9)
    device = xm.xla_device()
    grids = [Grid(rng) for _ in range(200)]
    model = LoadingNet().to(device)
    opt = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    monitor, start = LossMonitor(), time.time()
    for step in range(1, steps + 1):
        rows = rng.choice(len(grids), 8, replace=False)
        batch = {k: v.to(device) for k, v in collate([grids[i] for i in rows]).items()}
        train_step(model, opt, batch, monitor)
        if step % 20 == 0:
            logger.info("step %d loss %.4f (%.1fs)", step, monitor.recent(20), time.time() - start)


if __name__ == "__main__":
    main(sys.argv[1:])
