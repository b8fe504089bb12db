"""Message passing on random molecules: predicts a made-up solvation energy.

Molecules are packed into batches with a fixed budget of atoms and bonds
(the rest is padding), so that the compiled network has one shape only.
"""
import random
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

ELEMENTS = ("H", "C", "N", "O", "F")
CHARGE = torch.tensor([0.2, -0.1, -0.4, -0.6, -0.3])
ATOMS, BONDS, MOLECULES = 512, 1280, 48          # budget of one packed batch


@dataclass
class Molecule:
    z: torch.Tensor          # (atoms,) element
    bonds: torch.Tensor      # (2, directed bonds)
    y: float


def random_molecule(rng):
    """A random tree with a few ring closures; the energy is a function of neighbourhoods."""
    n = rng.randint(5, 20)
    parent = [(i, rng.randrange(max(0, i - 3), i)) for i in range(1, n)]
    rings = [(rng.randrange(n), rng.randrange(n)) for _ in range(n // 6)]
    src = [a for a, b in parent + rings if a != b] + [b for a, b in parent + rings if a != b]
    half = len(src) // 2
    dst = src[half:] + src[:half]
    z = torch.tensor([rng.choices(range(5), (4, 5, 1, 2, 1))[0] for _ in range(n)])
    bonds = torch.tensor([src, dst])
    around = torch.zeros(n).index_add_(0, bonds[1], CHARGE[z[bonds[0]]])
    energy = (CHARGE[z] * around).sum() + 0.3 * torch.tanh(around.square() - 0.2).sum() + 0.05 * rng.gauss(0, 1)
    return Molecule(z, bonds, float(energy))


def pack(molecules):
    """Greedy packing into fixed budgets; the last slot of each array is the bin for padding."""
    packs, current, atoms, bonds = [], [], 0, 0
    for m in molecules + [None]:
        full = m is not None and (len(current) == MOLECULES - 1 or atoms + len(m.z) >= ATOMS
                                  or bonds + m.bonds.shape[1] > BONDS)
        if current and (m is None or full):
            packs.append(assemble(current))
            current, atoms, bonds = [], 0, 0
        if m is not None:
            current.append(m)
            atoms, bonds = atoms + len(m.z), bonds + m.bonds.shape[1]
    return packs


def assemble(ms):
    z = torch.zeros(ATOMS, dtype=torch.long)
    owner = torch.full((ATOMS,), MOLECULES - 1)
    edge = torch.full((2, BONDS), ATOMS - 1)
    y, real = torch.zeros(MOLECULES), torch.zeros(MOLECULES)
    a = b = 0
    for k, m in enumerate(ms):
        n, e = len(m.z), m.bonds.shape[1]
        z[a:a + n], owner[a:a + n], edge[:, b:b + e] = m.z, k, m.bonds + a
        y[k], real[k] = m.y, 1.0
        a, b = a + n, b + e
    return z, edge, owner, y, real


class MPNN(nn.Module):
    def __init__(self, width=80, rounds=4):
        super().__init__()
        self.embed = nn.Embedding(len(ELEMENTS), width)
        self.message = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(rounds))
        self.update = nn.ModuleList(nn.GRUCell(width, width) for _ in range(rounds))
        self.read = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, z, edge, owner):
        h = self.embed(z)
        src, dst = edge
        for message, update in zip(self.message, self.update):
            m = F.silu(message(torch.cat([h[src], h[dst]], 1)))
            h = update(torch.zeros_like(h).index_add(0, dst, m), h)
        return torch.zeros(MOLECULES).index_add(0, owner, self.read(h)[:, 0])


def main(epochs=16):
    torch.manual_seed(0)
    rng = random.Random(3)
    molecules = [random_molecule(rng) for _ in range(1800)]
    train, valid = pack(molecules[:1500]), pack(molecules[1500:])       # packed once
    model = MPNN()
    net = torch.compile(model, backend="aot_eager", dynamic=False)
    opt = torch.optim.AdamW(model.parameters(), lr=1.5e-3)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=2)
    for epoch in range(epochs):
        rng.shuffle(train)
        net.train()
        losses = []
        for z, edge, owner, y, real in train:
            loss = ((net(z, edge, owner) - y).square() * real).sum() / real.sum()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)     # the norm stays on the device
            opt.step()
            losses.append(loss.detach())
        net.eval()
        with torch.no_grad():
            errors = torch.stack([((net(z, e, o) - y).abs() * r).sum() for z, e, o, y, r in valid])
        mae = errors.sum().item() / 300          # the scheduler needs it on the host, once per epoch
        plateau.step(mae)
        print(f"epoch {epoch}: train {torch.stack(losses).mean().item():.4f} valid mae {mae:.4f} "
              f"lr {opt.param_groups[0]['lr']:.1e}", flush=True)


if __name__ == "__main__":
    main()
