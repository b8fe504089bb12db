# Lattice Boltzmann (D2Q9): decay of a Taylor-Green vortex and a sheared jet, with a check of the viscosity.
# Diagnostics are taken at log-spaced times, as the decay is exponential.
import math
import time

import torch
import torch_xla

N = 96
TAU = 0.62
NU = (TAU - 0.5) / 3
U0 = 0.06

C = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
W = [4 / 9] + [1 / 9] * 4 + [1 / 36] * 4


class Lattice:
    def __init__(self, n, device):
        self.n, self.device = n, device
        self.c = torch.tensor(C, dtype=torch.float32, device=device)
        self.w = torch.tensor(W, dtype=torch.float32, device=device).view(9, 1, 1)

    def equilibrium(self, rho, ux, uy):
        cu = 3 * (self.c[:, 0].view(9, 1, 1) * ux + self.c[:, 1].view(9, 1, 1) * uy)
        usq = 1.5 * (ux * ux + uy * uy)
        return self.w * rho * (1 + cu + 0.5 * cu * cu - usq)

    def macroscopic(self, f):
        rho = f.sum(0)
        ux = (f * self.c[:, 0].view(9, 1, 1)).sum(0) / rho
        uy = (f * self.c[:, 1].view(9, 1, 1)).sum(0) / rho
        return rho, ux, uy

    def step(self, f):
        rho, ux, uy = self.macroscopic(f)
        f = f - (f - self.equilibrium(rho, ux, uy)) / TAU
        return torch.stack([torch.roll(f[i], shifts=C[i], dims=(0, 1)) for i in range(9)])


def taylor_green(lat):
    k = 2 * math.pi / lat.n
    x = torch.arange(lat.n).float()[:, None] * k
    y = torch.arange(lat.n).float()[None, :] * k
    ux = -U0 * torch.cos(x) * torch.sin(y)
    uy = U0 * torch.sin(x) * torch.cos(y)
    rho = 1 - 0.75 * U0 ** 2 * (torch.cos(2 * x) + torch.cos(2 * y))
    return [v.to(lat.device) for v in (rho, ux, uy)]


def sheared_jet(lat):
    y = torch.arange(lat.n).float()[None, :].expand(lat.n, lat.n)
    x = torch.arange(lat.n).float()[:, None].expand(lat.n, lat.n)
    ux = U0 * torch.exp(-((y - lat.n / 2) / 6) ** 2)
    uy = 0.01 * U0 * torch.sin(4 * math.pi * x / lat.n)
    return [v.contiguous().to(lat.device) for v in (torch.ones_like(ux), ux, uy)]


def report_times(last):
    """1, 2, 3, 5, 8, 12 ... : about a third more each time."""
    out, t = [], 1.0
    while t <= last:
        if not out or int(t) > out[-1]:
            out.append(int(t))
        t *= 1.36
    return out


def diagnostics(lat, f):
    rho, ux, uy = lat.macroscopic(f)
    energy = 0.5 * (rho * (ux * ux + uy * uy)).mean()
    mach = (ux * ux + uy * uy).max().sqrt() * math.sqrt(3)
    return torch.stack([energy, rho.mean(), mach]).tolist()


def simulate(name, lat, init, last):
    f = lat.equilibrium(*init(lat))
    e0 = diagnostics(lat, f)[0]
    history, done, begin = [], 0, time.time()
    for t in report_times(last):
        while done < t:
            f = lat.step(f)
            done += 1
        torch_xla.sync()
        energy, mass, mach = diagnostics(lat, f)
        history.append((t, energy / e0))
        print(f"{name} t={t:4d}  E/E0 {energy / e0:.5f}  mass {mass:.6f}  Mach {mach:.3f}  ({time.time() - begin:.1f} s)")
        assert abs(mass - 1) < 1e-3, "mass is lost"
    return history


def fitted_viscosity(history):
    """E ~ exp(-4 nu k^2 t) for the vortex, from the last half of the curve."""
    k = 2 * math.pi / N
    (t0, e0), (t1, e1) = history[len(history) // 2], history[-1]
    return -math.log(e1 / e0) / (4 * k * k * (t1 - t0))


def main():
    device = torch_xla.device()
    lat = Lattice(N, device)
    vortex = simulate("vortex", lat, taylor_green, 100)
    print(f"viscosity: set {NU:.5f}, found {fitted_viscosity(vortex):.5f}")
    jet = simulate("jet", lat, sheared_jet, 60)
    print(f"the jet keeps {jet[-1][1]:.1%} of its energy")


if __name__ == "__main__":
    main()
