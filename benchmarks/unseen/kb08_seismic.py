"""Full-waveform inversion (1-D) of a layered velocity model, multi-scale.

Acoustic wave propagation by finite differences; the time loop is cut in compiled
chunks. The inversion starts on a coarse grid and goes on with a fine one.
"""
import time

import torch

torch.manual_seed(29)
torch.set_num_threads(1)

DEPTH = 2000.0          # m
CHUNK = 8               # steps per compiled call
RECORD = 0.8            # s
STAGES = [(100, 5.0, 30), (200, 9.0, 30)]   # grid points, peak frequency, iterations


def ricker(freq, dt, steps):
    t = torch.arange(steps) * dt - 1.2 / freq
    a = (torch.pi * freq * t) ** 2
    return (1 - 2 * a) * torch.exp(-a)


def layered(points):
    z = torch.linspace(0, DEPTH, points)
    v = torch.full((points,), 1800.0)
    for top, speed in [(500, 2100.0), (900, 2000.0), (1300, 2600.0)]:
        v = torch.where(z > top, torch.tensor(speed), v)
    return v


def absorbing(points, width=0.12, strength=0.06):
    edge = int(points * width)
    ramp = torch.linspace(1, 0, edge) ** 2 * strength
    damp = torch.ones(points)
    damp[-edge:] -= ramp.flip(0)
    return damp


def chunk(prev, cur, factor, damp, source):
    """CHUNK leap-frog steps for all shots; gives the surface samples too."""
    samples = []
    for k in range(CHUNK):
        lap = torch.nn.functional.pad(cur[:, 2:] - 2 * cur[:, 1:-1] + cur[:, :-2], (1, 1))
        nxt = (2 * cur - prev) + factor * lap
        nxt = (nxt + source[:, k, None] * SHOT_MASK[cur.shape[1]]) * damp
        samples.append(nxt[:, 2])
        prev, cur = cur * damp, nxt
    return prev, cur, torch.stack(samples, 1)


SHOT_MASK = {n: torch.nn.functional.one_hot(torch.tensor(1), n).float() for n, _, _ in STAGES}
compiled_chunk = torch.compile(chunk, backend="inductor", dynamic=False)


class Survey:
    """Everything of one stage that does not depend on the velocity."""

    def __init__(self, points, freq, shots=16):
        self.points = points
        self.dz = DEPTH / points
        self.dt = 0.4 * self.dz / 3000.0
        steps = int(RECORD * 2 / self.dt) // CHUNK * CHUNK
        scale = torch.linspace(0.8, 1.2, shots)[:, None]
        self.wavelets = (scale * ricker(freq, self.dt, steps)).split(CHUNK, dim=1)
        self.damp = absorbing(points)
        self.zero = torch.zeros(shots, points)

    def record(self, velocity):
        factor = (velocity * self.dt / self.dz).square()
        # at rest, but already part of the graph: the first chunk looks like all others
        prev = self.zero + 0.0 * velocity
        cur, traces = prev.clone(), []
        for wavelet in self.wavelets:
            prev, cur, seen = compiled_chunk(prev, cur, factor, self.damp, wavelet)
            traces.append(seen)
        return torch.cat(traces, 1)


def invert(survey, observed, start, iterations):
    perturbation = torch.zeros_like(start, requires_grad=True)
    opt = torch.optim.Adam([perturbation], lr=0.03)
    history = []
    for _ in range(iterations):
        velocity = (start * torch.exp(perturbation)).clamp(1400, 2950)
        misfit = (survey.record(velocity) - observed).square().mean()
        opt.zero_grad()
        misfit.backward()
        opt.step()
        history.append(misfit.detach())
    return velocity.detach(), torch.stack(history)


def main():
    model = torch.linspace(1800, 2400, STAGES[0][0])
    for points, freq, iterations in STAGES:
        t0 = time.time()
        survey = Survey(points, freq)
        truth = layered(points)
        # the observed data: grad mode stays on, so that the same code serves the inversion
        observed = survey.record(truth.clone().requires_grad_()).detach()
        start = torch.nn.functional.interpolate(model[None, None], size=points, mode="linear",
                                                align_corners=True)[0, 0]
        model, history = invert(survey, observed, start, iterations)
        print(f"grid {points}: misfit {history[0].item():.3e} -> {history[-1].item():.3e}, "
              f"model error {(model - truth).abs().mean().item():.0f} m/s, {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
