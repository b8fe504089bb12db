"""Recover the feed and kill fields of a reaction-diffusion system from snapshots, by gradients through the solver."""
import time

import torch
import torch.nn.functional as F

torch.manual_seed(2)
GRID, DT, SUBSTEPS, WINDOWS = 96, 1.0, 40, 2


def laplacian(f):
    return (torch.roll(f, 1, 0) + torch.roll(f, -1, 0) + torch.roll(f, 1, 1) + torch.roll(f, -1, 1) - 4 * f)


def react(u, v, feed, kill):
    """One explicit Euler step of Gray and Scott."""
    uvv = u * v * v
    du = 0.16 * laplacian(u) - uvv + feed * (1 - u)
    dv = 0.08 * laplacian(v) + uvv - (feed + kill) * v
    return u + DT * du, v + DT * dv


@torch.compile(backend="aot_eager")
def advance(u, v, feed, kill):
    for _ in range(SUBSTEPS):
        u, v = react(u, v, feed, kill)
    return u, v


def initial_state():
    u, v = torch.ones(GRID, GRID), torch.zeros(GRID, GRID)
    for _ in range(14):
        i, j = torch.randint(6, GRID - 12, (2,)).tolist()
        u[i : i + 6, j : j + 6] = 0.5
        v[i : i + 6, j : j + 6] = 0.25
    return u + 0.01 * torch.rand(GRID, GRID), v + 0.01 * torch.rand(GRID, GRID)


class Fields(torch.nn.Module):
    """Smooth maps of the two rates: a coarse lattice of knots, interpolated to the grid."""

    def __init__(self, knots=5, feed=0.035, kill=0.06):
        super().__init__()
        self.feed_knots = torch.nn.Parameter(torch.full((1, 1, knots, knots), feed))
        self.kill_knots = torch.nn.Parameter(torch.full((1, 1, knots, knots), kill))

    def forward(self):
        up = dict(size=(GRID, GRID), mode="bilinear", align_corners=True)
        return F.interpolate(self.feed_knots, **up)[0, 0], F.interpolate(self.kill_knots, **up)[0, 0]


def make_truth():
    truth = Fields()
    with torch.no_grad():
        truth.feed_knots += 0.008 * torch.randn_like(truth.feed_knots).clamp(-1, 1)
        truth.kill_knots += 0.003 * torch.randn_like(truth.kill_knots).clamp(-1, 1)
    return truth


def simulate(fields, u, v, windows=WINDOWS):
    feed, kill = fields()
    frames = []
    for _ in range(windows):
        u, v = advance(u, v, feed, kill)
        frames.append(v)
    return torch.stack(frames), u, v


def roughness(field):
    return (field[..., 1:] - field[..., :-1]).square().mean() + (field[..., 1:, :] - field[..., :-1, :]).square().mean()


def main(iterations=30):
    truth, guess = make_truth(), Fields()
    starts, targets = [], []
    for _ in range(2):
        u, v = initial_state()
        for _ in range(60):  # the seeds need some time to grow into spots
            u, v = react(u, v, *(x.detach() for x in truth()))
        with torch.no_grad():
            frames, _, _ = simulate(truth, u, v)
        starts.append((u, v))
        targets.append(frames + 0.002 * torch.randn_like(frames))
    opt = torch.optim.Adam(guess.parameters(), lr=4e-4)
    t0 = time.perf_counter()
    for it in range(iterations):
        opt.zero_grad()
        total = torch.zeros(())
        for (u, v), frames in zip(starts, targets):
            pred, _, _ = simulate(guess, u, v)
            loss = 1e3 * F.mse_loss(pred, frames) + 5.0 * (roughness(guess.feed_knots) + roughness(guess.kill_knots))
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(guess.parameters(), 5.0)
        opt.step()
        if it % 6 == 0 or it == iterations - 1:
            with torch.no_grad():
                err_f = (guess.feed_knots - truth.feed_knots).abs().mean().item()
                err_k = (guess.kill_knots - truth.kill_knots).abs().mean().item()
            print(f"it {it:3d}  misfit {total.item():.5f}  |feed error| {err_f:.5f}  |kill error| {err_k:.5f}"
                  f"  {time.perf_counter() - t0:.1f} s")


if __name__ == "__main__":
    main()
