"""Batch least squares for satellite orbits from ground-station range / range-rate passes.

Six state elements plus a drag coefficient and a station bias are estimated with
Gauss-Newton; the dynamics (two-body, J2, drag) are integrated with RK4.
Units: km, s.
"""
import math
import time

import torch

MU, RE, J2 = 398600.4418, 6378.137, 1.08262668e-3
OMEGA = 7.2921159e-5
STATION = torch.tensor([4075.5, 931.8, 4801.6], dtype=torch.float64)


def accel(r, v, cd):
    r2 = (r * r).sum()
    rn = torch.sqrt(r2)
    z2 = r[2] * r[2] / r2
    k = 1.5 * J2 * (RE * RE) / r2
    fac = torch.stack([1 + k * (1 - 5 * z2), 1 + k * (1 - 5 * z2), 1 + k * (3 - 5 * z2)])
    rho = torch.exp(-(rn - RE - 400.0) / 60.0) * 1e-7
    return -MU / (r2 * rn) * r * fac - cd * rho * torch.linalg.vector_norm(v) * v


def rk4(r, v, cd, h):
    k1r, k1v = v, accel(r, v, cd)
    k2r, k2v = v + h / 2 * k1v, accel(r + h / 2 * k1r, v + h / 2 * k1v, cd)
    k3r, k3v = v + h / 2 * k2v, accel(r + h / 2 * k2r, v + h / 2 * k2v, cd)
    k4r, k4v = v + h * k3v, accel(r + h * k3r, v + h * k3v, cd)
    return (r + h / 6 * (k1r + 2 * k2r + 2 * k3r + k4r),
            v + h / 6 * (k1v + 2 * k2v + 2 * k3v + k4v))


advance = torch.compile(rk4, backend="aot_eager", fullgraph=True)


class PassModel:
    """Predicted measurements of one pass, as a function of the solve-for vector."""

    def __init__(self, times, h):
        self.times = times
        self.h = torch.tensor(h, dtype=torch.float64)
        ang = OMEGA * times
        c, s = torch.cos(ang), torch.sin(ang)
        self.site = torch.stack([c * STATION[0] - s * STATION[1], s * STATION[0] + c * STATION[1],
                                 STATION[2].expand_as(c)], 1)
        self.site_v = torch.stack([-OMEGA * self.site[:, 1], OMEGA * self.site[:, 0],
                                   torch.zeros_like(c)], 1)

    def __call__(self, x):
        r, v, cd, bias = x[:3] * 1e3, x[3:6], x[6], x[7]
        rs, vs = [], []
        for _ in range(len(self.times)):
            r, v = advance(r, v, cd, self.h)
            rs.append(r)
            vs.append(v)
        d = torch.stack(rs) - self.site
        rng = torch.linalg.vector_norm(d, dim=1)
        rate = (d * (torch.stack(vs) - self.site_v)).sum(1) / rng
        return torch.cat([rng + bias, rate * 100.0])


def sensitivities(model, x):
    """Predicted measurements and their partials with respect to the solve-for vector."""
    jac = torch.autograd.functional.jacobian(model, x)
    with torch.no_grad():
        y = model(x)
    return y, jac


def gauss_newton(model, obs, x0, weight, iters=3):
    x = x0.clone()
    rms = float("nan")
    prior = torch.eye(len(x), dtype=x.dtype) * 400.0
    for _ in range(iters):
        y, jac = sensitivities(model, x)
        res = (obs - y) * weight
        rms = res.pow(2).mean().sqrt().item()
        jw = jac * weight.unsqueeze(1)
        x = x + torch.linalg.solve(jw.T @ jw + prior, jw.T @ res)
    return x, rms


def true_state(gen):
    a = RE + 420 + 80 * torch.rand((), generator=gen, dtype=torch.float64)
    inc = math.radians(51.6) + 0.05 * torch.randn((), generator=gen, dtype=torch.float64)
    u = 0.7 + 0.1 * torch.rand((), generator=gen, dtype=torch.float64)
    speed = torch.sqrt(MU / a)
    r = a * torch.stack([torch.cos(u), torch.sin(u) * torch.cos(inc), torch.sin(u) * torch.sin(inc)])
    v = speed * torch.stack([-torch.sin(u), torch.cos(u) * torch.cos(inc), torch.cos(u) * torch.sin(inc)])
    extra = torch.tensor([2.2, 0.0], dtype=torch.float64)
    return torch.cat([r / 1e3, v, extra])


def main():
    gen = torch.Generator().manual_seed(20)
    n, h = 20, 30.0
    model = PassModel(h * torch.arange(1, n + 1, dtype=torch.float64), h)
    weight = torch.cat([torch.full((n,), 50.0), torch.full((n,), 100.0)]).double()
    t0 = time.time()
    for sat in range(3):
        truth = true_state(gen)
        truth[7] = 0.05 * torch.randn((), generator=gen, dtype=torch.float64)
        with torch.no_grad():
            obs = model(truth)
        obs = obs + torch.randn(2 * n, generator=gen, dtype=torch.float64) / weight
        kick = torch.randn(8, generator=gen, dtype=torch.float64)
        kick = kick * 0.1 * torch.tensor([.002, .002, .002, .003, .003, .003, .2, .0]).double()
        est, rms = gauss_newton(model, obs, truth + kick, weight)
        pos = (est[:3] - truth[:3]).norm().item() * 1e3
        print(f"sat {sat}: weighted rms {rms:.3f}, position error {pos:.3f} km, {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
