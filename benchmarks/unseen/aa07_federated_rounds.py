"""Federated averaging over clients that hold differing amounts of data."""
import copy

import torch_xla
import torch_xla.core.xla_model as xm
import torch
import torch.nn as nn
import torch.nn.functional as F

FEATURES, CLASSES = 16, 4


class Client:
    def __init__(self, cid, n, device):
        g = torch.Generator().manual_seed(50 + cid)
        shift = 0.3 * torch.randn(FEATURES, generator=g)
        w = torch.randn(FEATURES, CLASSES, generator=torch.Generator().manual_seed(1))
        self.x = torch.randn(n, FEATURES, generator=g) + shift
        self.y = (self.x @ w).argmax(1)
        self.cid, self.n, self.device = cid, n, device
        self.gen = g

    def batches(self, size):
        order = torch.randperm(self.n, generator=self.gen)
        for i in range(0, self.n, size):
            idx = order[i:i + size]
            yield self.x[idx].to(self.device), self.y[idx].to(self.device)

    def local_update(self, global_model, lr, batch_size):
        model = copy.deepcopy(global_model)
        opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        for x, y in self.batches(batch_size):
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            xm.mark_step()
        flat = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
        xm.mark_step()
        return flat


class Server:
    """Keeps the global weights; clients upload one flat vector each."""

    def __init__(self, model, device):
        self.model = model
        self.device = device

    def aggregate(self, updates, weights):
        total = sum(weights)
        old = torch.nn.utils.parameters_to_vector(self.model.parameters()).detach().cpu()
        uploads = [u.cpu() for u in updates]
        merged = sum(u * (w / total) for u, w in zip(uploads, weights))
        self.install(merged)
        return float((merged - old).norm())

    @torch.no_grad()
    def install(self, vector):
        offset = 0
        for p in self.model.parameters():
            n = p.numel()
            p.data = vector[offset:offset + n].view_as(p).to(self.device)
            offset += n


def build_model(blocks=2, width=24):
    layers = [nn.Linear(FEATURES, width), nn.LayerNorm(width), nn.ReLU()]
    for _ in range(blocks):
        layers += [nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, CLASSES))


@torch.no_grad()
def evaluate(model, x, y, device):
    logits = model(x.to(device))
    correct = (logits.argmax(1) == y.to(device)).sum()
    xm.mark_step()
    return correct.item() / len(y)


def main():
    torch.manual_seed(2)
    device = xm.xla_device()
    clients = [Client(i, 40 + 7 * i, device) for i in range(10)]
    server = Server(build_model().to(device), device)
    holdout = Client(99, 256, torch.device("cpu"))
    lr = 0.05
    for rnd in range(12):
        picked = [clients[(rnd * 3 + j) % len(clients)] for j in range(6)]
        updates = [c.local_update(server.model, lr, 16) for c in picked]
        moved = server.aggregate(updates, [c.n for c in picked])
        lr *= 0.97
        if rnd % 4 == 3:
            acc = evaluate(server.model, holdout.x, holdout.y, device)
            print(f"round {rnd + 1}: accuracy {acc:.3f} moved {moved:.3f}", flush=True)


if __name__ == "__main__":
    main()
