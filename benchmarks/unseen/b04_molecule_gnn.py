"""Node-level property prediction on batches of small molecules (message passing)."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

import torch_xla

CONFIG = dict(node_dim=8, edge_dim=4, hidden=16, layers=1, batch=4, steps=14, lr=1e-2, label_rate=0.6)


def molecule(rng):
    n = rng.randint(5, 12)
    pairs = [(i, i + 1) for i in range(n - 1)]
    for _ in range(rng.randint(1, 4)):
        a, b = rng.sample(range(n), 2)
        pairs.append((a, b))
    src = torch.tensor([a for a, b in pairs] + [b for a, b in pairs])
    dst = torch.tensor([b for a, b in pairs] + [a for a, b in pairs])
    nodes = torch.randn(n, CONFIG["node_dim"])
    edges = torch.randn(len(src), CONFIG["edge_dim"])
    target = nodes[:, 0] * 0.5 + torch.randn(n) * 0.05
    known = torch.rand(n) < CONFIG["label_rate"]
    return nodes, edges, torch.stack([src, dst]), target, known


def merge(molecules):
    """Puts molecules side by side into one graph."""
    nodes, edges, index, target, known = zip(*molecules)
    offset, shifted = 0, []
    for n, e in zip(nodes, index):
        shifted.append(e + offset)
        offset += len(n)
    return torch.cat(nodes), torch.cat(edges), torch.cat(shifted, 1), torch.cat(target), torch.cat(known)


class MessageLayer(nn.Module):
    def __init__(self, hidden, edge_dim):
        super().__init__()
        self.message = nn.Linear(2 * hidden + edge_dim, hidden)
        self.update = nn.Linear(2 * hidden, hidden)

    def forward(self, h, e, index):
        src, dst = index[0], index[1]
        m = F.relu(self.message(torch.cat([h[src], h[dst], e], -1)))
        agg = torch.zeros_like(h).index_add(0, dst, m)
        return h + F.relu(self.update(torch.cat([h, agg], -1)))


class MolNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Linear(cfg["node_dim"], cfg["hidden"])
        self.layers = nn.ModuleList(MessageLayer(cfg["hidden"], cfg["edge_dim"]) for _ in range(cfg["layers"]))
        self.out = nn.Linear(cfg["hidden"], 1)

    def forward(self, x, e, index):
        h = self.embed(x)
        for layer in self.layers:
            h = layer(h, e, index)
        return self.out(h).squeeze(-1)


def known_loss(pred, target, known):
    return F.mse_loss(pred[known], target[known])


def main():
    cfg = CONFIG
    torch.manual_seed(7)
    rng = random.Random(7)
    device = torch_xla.device()
    data = [molecule(rng) for _ in range(cfg["batch"] * cfg["steps"])]
    model = MolNet(cfg).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=cfg["lr"])
    running = torch.zeros((), device=device)
    for step in range(cfg["steps"]):
        batch = merge(data[step * cfg["batch"]:(step + 1) * cfg["batch"]])
        x, e, index, target, known = (t.to(device) for t in batch)
        loss = known_loss(model(x, e, index), target, known)
        opt.zero_grad()
        loss.backward()
        opt.step()
        running.mul_(0.9).add_(loss.detach(), alpha=0.1)
        torch_xla.sync()
    print(f"final running loss {running.item():.4f}")


if __name__ == "__main__":
    main()
