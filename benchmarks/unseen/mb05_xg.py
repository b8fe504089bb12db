"""Expected goals (xG) from shot freeze-frames, with k-fold cross-validation over matches.

A shot is its own geometry plus the positions of the players in view; a small attention
pooling net is trained per fold, and out-of-fold log-loss and calibration are reported.
"""
import math
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

N_PLAYERS = 12
GOAL = (105.0, 34.0)


def synth_shots(n, n_matches, seed=0):
    rng = random.Random(seed)
    shots = []
    for _ in range(n):
        x, y = rng.uniform(75, 104), rng.uniform(10, 58)
        d = math.hypot(GOAL[0] - x, GOAL[1] - y)
        players = []
        for _ in range(rng.randint(4, N_PLAYERS)):
            players.append((rng.uniform(70, 105), rng.uniform(0, 68), rng.random() < 0.6))
        blockers = sum(1 for px, py, opp in players if opp and px > x and abs(py - y) < 6)
        logit = 1.6 - 0.13 * d - 0.45 * blockers
        goal = rng.random() < 1 / (1 + math.exp(-logit))
        shots.append(dict(match=rng.randrange(n_matches), x=x, y=y, head=rng.random() < 0.2,
                          players=players, goal=float(goal)))
    return shots


def featurise(shots):
    ego = torch.zeros(len(shots), 5)
    frame = torch.zeros(len(shots), N_PLAYERS, 6)
    mask = torch.zeros(len(shots), N_PLAYERS, dtype=torch.bool)
    for i, s in enumerate(shots):
        dx, dy = GOAL[0] - s["x"], GOAL[1] - s["y"]
        dist = math.hypot(dx, dy)
        angle = math.atan2(7.32 * dx, dx * dx + dy * dy - 3.66**2)
        ego[i] = torch.tensor([dx / 30, dy / 30, dist / 30, angle, float(s["head"])])
        for j, (px, py, opp) in enumerate(s["players"]):
            rx, ry = px - s["x"], py - s["y"]
            frame[i, j] = torch.tensor([rx / 30, ry / 30, math.hypot(rx, ry) / 30,
                                        (GOAL[0] - px) / 30, (GOAL[1] - py) / 30, float(opp)])
            mask[i, j] = True
    label = torch.tensor([s["goal"] for s in shots])
    match = torch.tensor([s["match"] for s in shots])
    return ego, frame, mask, label, match


class ShotNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.player = nn.Sequential(nn.Linear(6, width), nn.GELU(), nn.Linear(width, width))
        self.query = nn.Linear(5, width)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Sequential(nn.Linear(width + 5, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, ego, frame, mask):
        h = self.player(frame)
        score = torch.einsum("bpw,bw->bp", h, self.query(ego)) / math.sqrt(h.shape[-1])
        w = torch.softmax(score.masked_fill(~mask, -1e4), -1)
        pooled = self.norm(torch.einsum("bp,bpw->bw", w, h))
        return self.head(torch.cat([pooled, ego], -1)).squeeze(-1)


def fresh_model(seed):
    """A new, independent learner: nothing of the last fold may leak into it."""
    torch.compiler.reset()
    torch.manual_seed(seed)
    net = ShotNet()
    return net, torch.compile(net, backend="aot_eager")


def fit(data, rows, seed, epochs=10, batch=128):
    ego, frame, mask, label = data
    net, fast = fresh_model(seed)
    opt = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=1e-3)
    gen = torch.Generator().manual_seed(seed)
    usable = len(rows) // batch * batch
    for _ in range(epochs):
        order = rows[torch.randperm(len(rows), generator=gen)[:usable]]
        for idx in order.view(-1, batch):
            loss = F.binary_cross_entropy_with_logits(fast(ego[idx], frame[idx], mask[idx]), label[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
    return net.eval(), loss.item()


def main():
    torch.manual_seed(0)
    folds, n_matches = 20, 60
    t0 = time.time()
    *data, match = featurise(synth_shots(1500, n_matches))
    print(f"features {time.time() - t0:.1f}s, goal rate {data[3].mean().item():.3f}")
    out = torch.zeros(len(match))
    for k in range(folds):
        held = match % folds == k
        net, last = fit(data, torch.nonzero(~held).flatten(), seed=k)
        with torch.no_grad():
            out[held] = torch.sigmoid(net(data[0][held], data[1][held], data[2][held]))
        ll = F.binary_cross_entropy(out[held], data[3][held]).item()
        print(f"fold {k}: last train loss {last:.4f}, held-out log-loss {ll:.4f}, {time.time() - t0:.1f}s")
    for lo, hi in ((0, 0.1), (0.1, 0.3), (0.3, 1.0)):
        sel = (out >= lo) & (out < hi)
        print(f"xG in [{lo}, {hi}): n={int(sel.sum())} mean {out[sel].mean():.3f} goals {data[3][sel].mean():.3f}")


if __name__ == "__main__":
    main()
