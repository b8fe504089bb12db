# Connect-4 self play with a small policy/value network (AlphaZero-like, without the tree search).
import time
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla
import torch_xla.core.xla_model as xm

ROWS, COLS = 6, 7
GAMES, ITERATIONS, TRAIN_STEPS, BATCH = 14, 2, 16, 128


class PolicyValueNet(nn.Module):
    def __init__(self, width=32, blocks=3):
        super().__init__()
        self.stem = nn.Conv2d(2, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1))
            for _ in range(blocks))
        self.policy = nn.Linear(width * ROWS * COLS, COLS)
        self.value = nn.Sequential(nn.Linear(width * ROWS * COLS, 64), nn.ReLU(), nn.Linear(64, 1), nn.Tanh())

    def forward(self, x):
        x = F.relu(self.stem(x))
        for b in self.blocks:
            x = F.relu(x + b(x))
        x = x.flatten(1)
        return self.policy(x), self.value(x).squeeze(1)


def planes(boards, player):
    return np.stack([boards == player, boards == -player], 1).astype(np.float32)


def drop(board, col, player):
    row = ROWS - 1 - int((board[:, col] != 0).sum())
    board[row, col] = player
    return row


def wins(board, r, c):
    p = board[r, c]
    for dr, dc in ((0, 1), (1, 0), (1, 1), (1, -1)):
        n = 1
        for s in (1, -1):
            i, j = r + s * dr, c + s * dc
            while 0 <= i < ROWS and 0 <= j < COLS and board[i, j] == p:
                n += 1
                i, j = i + s * dr, j + s * dc
        if n >= 4:
            return True
    return False


@torch.no_grad()
def self_play(net, device, games, temperature):
    boards = np.zeros((games, ROWS, COLS), np.int8)
    result = np.zeros(games)
    alive = np.arange(games)
    history = [[] for _ in range(games)]
    player = 1
    while len(alive):
        x = planes(boards[alive], player)
        logits, _ = net(torch.from_numpy(x).to(device))
        legal = torch.from_numpy(boards[alive, 0] == 0).to(device)
        probs = F.softmax((logits / temperature).masked_fill(~legal, -1e9), 1)
        actions = torch.multinomial(probs, 1).squeeze(1).cpu().numpy()
        still = []
        for k, g in enumerate(alive):
            history[g].append((x[k], actions[k], player))
            r = drop(boards[g], actions[k], player)
            if wins(boards[g], r, actions[k]):
                result[g] = player
            elif (boards[g, 0] == 0).any():
                still.append(g)
        alive = np.array(still, dtype=int)
        player = -player
    samples = [(x, a, result[g] * p) for g in range(games) for x, a, p in history[g]]
    return samples, result


def train(net, opt, buffer, device, rng):
    net.train()
    xs = np.stack([s[0] for s in buffer])
    acts = np.array([s[1] for s in buffer], dtype=np.int64)
    zs = np.array([s[2] for s in buffer], dtype=np.float32)
    total = torch.zeros((), device=device)
    for _ in range(TRAIN_STEPS):
        i = rng.integers(0, len(xs), BATCH)
        x, a, z = (torch.from_numpy(v[i]).to(device) for v in (xs, acts, zs))
        opt.zero_grad()
        logits, v = net(x)
        policy = (F.cross_entropy(logits, a, reduction="none") * z.clamp_min(0)).mean()
        entropy = -(F.softmax(logits, 1) * F.log_softmax(logits, 1)).sum(1).mean()
        loss = policy + F.mse_loss(v, z) - 0.02 * entropy
        loss.backward()
        xm.optimizer_step(opt)
        total += loss.detach()
        torch_xla.sync()
    return total.item() / TRAIN_STEPS


def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    device = torch_xla.device()
    net = PolicyValueNet().to(device)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-4)
    buffer = []
    for it in range(ITERATIONS):
        t = time.time()
        samples, result = self_play(net, device, GAMES, temperature=max(0.5, 1.2 - 0.2 * it))
        t_play = time.time() - t
        buffer = (buffer + samples)[-6000:]
        loss = train(net, opt, buffer, device, rng)
        print(f"iteration {it}: {len(samples)} positions ({t_play:.1f} s), first player {np.mean(result > 0):.2f} "
              f"draws {np.mean(result == 0):.2f}, loss {loss:.3f}, {time.time() - t:.1f} s")


main()
