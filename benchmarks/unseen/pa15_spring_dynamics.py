"""Learning spring dynamics with a torch_geometric interaction network, compiled."""
import json
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import scatter

BODIES = {"small": 6, "large": 10}


def chain(n):
    one = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
    return torch.cat([one, one.flip(0)], 1)


def simulate(n, systems, gen):
    edge = chain(n)
    pos, vel = torch.randn(systems, n, 2, generator=gen), torch.randn(systems, n, 2, generator=gen)
    pull = pos[:, edge[0]] - pos[:, edge[1]]
    acc = torch.zeros_like(pos).index_add_(1, edge[1], pull) - 0.1 * vel
    offset = (torch.arange(systems) * n).repeat_interleave(edge.shape[1])
    big = edge.repeat(1, systems) + offset
    return torch.cat([pos, vel], -1).flatten(0, 1), big, acc.flatten(0, 1)


class Interaction(MessagePassing):
    def __init__(self, width):
        super().__init__(aggr="add")
        self.message_mlp = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))
        self.update_mlp = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, h, edge_index):
        return h + self.update_mlp(torch.cat([h, self.propagate(edge_index, h=h)], -1))

    def message(self, h_i, h_j):
        return self.message_mlp(torch.cat([h_i, h_j], -1))


class Dynamics(nn.Module):
    def __init__(self, width=32, rounds=2):
        super().__init__()
        self.encode = nn.Linear(4, width)
        self.rounds = nn.ModuleList(Interaction(width) for _ in range(rounds))
        self.decode = nn.Linear(width, 2)

    def forward(self, state, edge_index):
        h = self.encode(state)
        for layer in self.rounds:
            h = layer(h, edge_index)
        return self.decode(h)


class Curriculum:
    """Small systems first, both sorts in turn afterwards."""

    def __init__(self, switch):
        self.switch = switch

    def pick(self, step):
        return "small" if step < self.switch or step % 2 else "large"


class Checkpoints:
    def __init__(self, folder, every):
        self.folder, self.every, self.written = folder, every, 0

    def maybe(self, step, model, opt):
        if step % self.every == 0:
            torch.save({"model": model.state_dict(), "opt": opt.state_dict()}, os.path.join(self.folder, f"{step}.pt"))
            self.written += 1


@torch.no_grad()
def evaluate(model, sets):
    model.eval()
    scores = {name: F.l1_loss(model(s, e), a).item() for name, (s, e, a) in sets.items()}
    model.train()
    return scores


def main(steps=600, systems=8, report=300):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    model = Dynamics()
    predict = torch.compile(model, backend="aot_eager", dynamic=False)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.MultiStepLR(opt, [350, 500], 0.3)
    curriculum = Curriculum(switch=150)
    held_out = {name: simulate(n, systems, torch.Generator().manual_seed(5)) for name, n in BODIES.items()}
    total, seen = torch.zeros(()), 0
    with tempfile.TemporaryDirectory() as folder:
        keeper = Checkpoints(folder, 300)
        for step in range(1, steps + 1):
            state, edges, acc = simulate(BODIES[curriculum.pick(step)], systems, gen)
            loss = F.mse_loss(predict(state, edges), acc)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            sched.step()
            total, seen = total + loss.detach(), seen + 1
            keeper.maybe(step, model, opt)
            if step % report == 0:
                line = {"step": step, "loss": round(total.item() / seen, 4), **evaluate(model, held_out)}
                print(json.dumps(line))
                total, seen = torch.zeros(()), 0


if __name__ == "__main__":
    main()
