"""Poisson equation by a multigrid V-cycle; one compiled smoother serves all grid levels."""
import argparse
import math
import time

import torch
import torch.nn.functional as F


def laplacian(u, h):
    p = F.pad(u[None, None], (1, 1, 1, 1))[0, 0]
    return (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u) / (h * h)


@torch.compile(dynamic=True)
def smooth(u, f, h):
    """Two damped Jacobi sweeps; h is a tensor."""
    for _ in range(2):
        u = u - 0.8 * (h * h / 4) * (f - laplacian(u, h))
    return u


@torch.compile(dynamic=True)
def residual(u, f, h):
    return f - laplacian(u, h)


def restrict(r):
    """Full weighting onto the grid with every second interior point."""
    k = torch.tensor([[1., 2., 1.], [2., 4., 2.], [1., 2., 1.]], dtype=r.dtype) / 16
    return F.conv2d(r[None, None], k[None, None], stride=2)[0, 0]


def prolong(e, n):
    """Bilinear interpolation from the coarse interior to the fine interior of size n."""
    p = F.pad(e[None, None], (1, 1, 1, 1))
    full = F.interpolate(p, size=(n + 2, n + 2), mode="bilinear", align_corners=True)
    return full[0, 0, 1:-1, 1:-1]


class Solver:
    def __init__(self, n, coarsest=31):
        self.sizes = []
        while n >= coarsest:
            self.sizes.append(n)
            n = (n - 1) // 2
        self.steps = [torch.tensor(1.0 / (m + 1), dtype=torch.float64) for m in self.sizes]
        self.dense = self._coarse_inverse(self.sizes[-1])

    def _coarse_inverse(self, n):
        h = 1.0 / (n + 1)
        a = (torch.diag(torch.full((n,), -2.0)) + torch.diag(torch.ones(n - 1), 1) + torch.diag(torch.ones(n - 1), -1))
        a = a.double() / (h * h)
        eye = torch.eye(n, dtype=torch.float64)
        return torch.linalg.lu_factor(torch.kron(a, eye) + torch.kron(eye, a))

    def cycle(self, u, f, level=0):
        if level == len(self.sizes) - 1:
            return torch.linalg.lu_solve(*self.dense, f.reshape(-1, 1)).view_as(f)
        h = self.steps[level]
        u = smooth(u, f, h)
        r = restrict(residual(u, f, h))
        e = self.cycle(torch.zeros_like(r), r, level + 1)
        u = u + prolong(e, u.size(0))
        return smooth(u, f, h)

    def solve(self, f, tol=1e-8, max_cycles=40):
        u, scale = torch.zeros_like(f), f.norm()
        for k in range(1, max_cycles + 1):
            u = self.cycle(u, f)
            rel = (residual(u, f, self.steps[0]).norm() / scale).item()
            if rel < tol:
                break
        return u, k, rel


def sources(n, count):
    """Products of sine modes, whose solutions are known."""
    x = torch.arange(1, n + 1, dtype=torch.float64) / (n + 1)
    g = torch.Generator().manual_seed(5)
    for _ in range(count):
        a, b = torch.randint(1, 5, (2,), generator=g).tolist()
        exact = torch.outer(torch.sin(a * math.pi * x), torch.sin(b * math.pi * x))
        yield (a, b), exact, -math.pi ** 2 * (a * a + b * b) * exact


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--n", type=int, default=511)
    ap.add_argument("--problems", type=int, default=8)
    a = ap.parse_args()
    solver = Solver(a.n)
    print("levels", solver.sizes)
    with torch.no_grad():
        for mode, exact, f in sources(a.n, a.problems):
            t0 = time.perf_counter()
            u, cycles, rel = solver.solve(f)
            err = (u - exact).abs().max().item()
            print(f"mode {mode}: {cycles} cycles, residual {rel:.1e}, max error {err:.2e}, {time.perf_counter() - t0:.2f}s")


if __name__ == "__main__":
    main()
