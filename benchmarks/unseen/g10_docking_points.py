"""Score binding poses from the atoms that lie near the pocket (set transformer)."""
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class CompileOpts:
    backend: str = "aot_eager"
    static_shapes: bool = True      # faster kernels, says the wiki

    def apply(self, module):
        return torch.compile(module, backend=self.backend, dynamic=False if self.static_shapes else None)


@dataclass
class RunCfg:
    steps: int = 220
    batch: int = 24
    radius: float = 1.05
    dim: int = 32
    layers: int = 2
    compile: CompileOpts = field(default_factory=CompileOpts)


class InducedBlock(nn.Module):
    def __init__(self, dim, points=8):
        super().__init__()
        self.induce = nn.Parameter(torch.randn(1, points, dim) * 0.1)
        self.read = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.write = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))

    def forward(self, h, pad):
        q = self.induce.expand(h.shape[0], -1, -1)
        m, _ = self.read(q, h, h, key_padding_mask=pad, need_weights=False)
        d, _ = self.write(self.n1(h), m, m, need_weights=False)
        h = h + d
        return h + self.ff(self.n2(h))


class PoseScorer(nn.Module):
    def __init__(self, dim, layers, elements=9):
        super().__init__()
        self.elem = nn.Embedding(elements, dim)
        self.geo = nn.Linear(4, dim)
        self.blocks = nn.ModuleList(InducedBlock(dim) for _ in range(layers))
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 1))

    def forward(self, xyz, z, pad):
        r = xyz.norm(dim=-1, keepdim=True)
        h = self.elem(z) + self.geo(torch.cat([xyz, r], -1))
        for blk in self.blocks:
            h = blk(h, pad)
        w = (~pad).unsqueeze(-1).to(h.dtype)
        return self.head((h * w).sum(1) / w.sum(1).clamp(min=1)).squeeze(-1)


class Complexes:
    """Stands for the parsed structure files: coordinates around a pocket and element ids."""

    def __init__(self, n, seed=0, atoms=120):
        g = torch.Generator().manual_seed(seed)
        self.xyz = torch.randn(n, atoms, 3, generator=g)
        self.z = torch.randint(1, 9, (n, atoms), generator=g)
        self.y = (self.xyz[..., 0].abs().mean(1) + self.z.float().mean(1) * 0.1)
        self.gen = g

    def draw(self, k):
        i = torch.randint(0, self.y.shape[0], (k,), generator=self.gen)
        return self.xyz[i], self.z[i], self.y[i]


def near_pocket(xyz, z, radius):
    """Keep the atoms within the radius; the rest is packed away to the right and cut."""
    inside = xyz.norm(dim=-1) < radius
    order = torch.argsort((~inside).to(torch.int8), dim=1, stable=True)
    n = int(inside.sum(1).max())
    order = order[:, :n]
    xyz = torch.gather(xyz, 1, order.unsqueeze(-1).expand(-1, -1, 3))
    return xyz, torch.gather(z, 1, order), ~torch.gather(inside, 1, order)


def train(cfg):
    data = Complexes(1500)
    net = PoseScorer(cfg.dim, cfg.layers)
    model = cfg.compile.apply(net)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.01)
    log = []
    for step in range(cfg.steps):
        xyz, z, y = data.draw(cfg.batch)
        xyz, z, pad = near_pocket(xyz, z, cfg.radius)
        loss = F.mse_loss(model(xyz, z, pad), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 55 == 54:
            log.append((step, loss.item()))
            print("step %d mse %.4f" % log[-1])
    return log


if __name__ == "__main__":
    torch.manual_seed(11)
    train(RunCfg())
