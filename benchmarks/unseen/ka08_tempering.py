"""Replica-exchange (parallel tempering) sampling of the 2-D XY model.

All temperatures live on the device as one tensor (replica, L, L). A sweep is a
checkerboard Metropolis update; between blocks of sweeps neighbouring replicas
trade temperatures. The vortex density and the helicity are printed per chapter.
"""
import math

import torch
import torch_xla
import torch_xla.core.xla_model as xm

L = 64
TEMPERATURES = torch.linspace(0.5, 1.4, 12)
SWEEPS_PER_BLOCK = 4
BLOCKS_PER_CHAPTER = 90
CHAPTERS = 6


def wrap(angle):
    return torch.remainder(angle + math.pi, 2 * math.pi) - math.pi


class XYReplicas:
    def __init__(self, device):
        self.device = device
        self.beta = (1.0 / TEMPERATURES).to(device)
        self.theta = (torch.rand(len(TEMPERATURES), L, L) * 2 * math.pi).to(device)
        grid = torch.arange(L)
        colour = (grid.view(-1, 1) + grid.view(1, -1)) % 2
        self.colours = [(colour == c).float().to(device) for c in (0, 1)]
        pairs = []
        for parity in (0, 1):
            partner = torch.arange(len(TEMPERATURES))
            for i in range(parity, len(TEMPERATURES) - 1, 2):
                partner[i], partner[i + 1] = i + 1, i
            pairs.append(partner)
        self.partners = [p.to(device) for p in pairs]
        self.accepted = torch.zeros(()).to(device)

    def local_energy(self, theta):
        total = 0.0
        for axis in (1, 2):
            for shift in (1, -1):
                total = total - torch.cos(theta - torch.roll(self.theta, shift, axis))
        return total

    def sweep(self):
        beta = self.beta.view(-1, 1, 1)
        for mask in self.colours:
            trial = self.theta + 2.0 * (torch.rand_like(self.theta) - 0.5)
            delta = self.local_energy(trial) - self.local_energy(self.theta)
            accept = (torch.rand_like(delta) < torch.exp(-beta * delta)).float() * mask
            self.theta = self.theta + accept * (trial - self.theta)
            self.accepted = self.accepted + accept.mean()

    def energy(self):
        bonds = sum(torch.cos(self.theta - torch.roll(self.theta, 1, axis)) for axis in (1, 2))
        return -bonds.sum((1, 2))

    def exchange(self, parity):
        """Swap configurations of partners; both of a pair share one random number."""
        partner = self.partners[parity]
        energy = self.energy()
        gain = (self.beta - self.beta[partner]) * (energy - energy[partner])
        index = torch.arange(len(TEMPERATURES), device=self.device)
        draw = torch.rand(len(TEMPERATURES), device=self.device)[torch.minimum(index, partner)]
        swap = (torch.log(draw) < gain).view(-1, 1, 1)
        self.theta = torch.where(swap, self.theta[partner], self.theta)

    def block(self, parity):
        for _ in range(SWEEPS_PER_BLOCK):
            self.sweep()
        self.exchange(parity)
        self.theta = wrap(self.theta)

    def vortices(self):
        t = self.theta
        corners = [t, torch.roll(t, -1, 1), torch.roll(t, (-1, -1), (1, 2)), torch.roll(t, -1, 2)]
        winding = sum(wrap(corners[(i + 1) % 4] - corners[i]) for i in range(4)) / (2 * math.pi)
        return winding.abs().round().mean((1, 2))


def main():
    torch.manual_seed(23)
    replicas = XYReplicas(torch_xla.device())
    for chapter in range(CHAPTERS):
        mean_energy = torch.zeros(len(TEMPERATURES)).to(replicas.device)
        density = torch.zeros(len(TEMPERATURES)).to(replicas.device)
        replicas.accepted = torch.zeros(()).to(replicas.device)
        for block in range(BLOCKS_PER_CHAPTER):
            replicas.block(block % 2)
            mean_energy += replicas.energy() / (L * L)
            density += replicas.vortices()
            xm.mark_step()
        rate = replicas.accepted.item() / (BLOCKS_PER_CHAPTER * SWEEPS_PER_BLOCK)
        e = (mean_energy / BLOCKS_PER_CHAPTER).cpu()
        v = (density / BLOCKS_PER_CHAPTER).cpu()
        print(f"chapter {chapter} acceptance {rate:.2f} E/N {e[0]:.3f} .. {e[-1]:.3f} "
              f"vortices {v[0]:.4f} .. {v[-1]:.4f}")


if __name__ == "__main__":
    main()
