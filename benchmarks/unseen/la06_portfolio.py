"""Policy search for a long-only portfolio: a net maps a price window to weights, reward is log growth."""
import numpy as np
import torch
import torch.nn as nn
import torch_xla
import torch_xla.core.xla_model as xm

ASSETS = 8
DAYS = 384
TRAIN_DAYS = 360
LOOKBACK = 24
HORIZON = 4
COST = 0.0015
EPISODES = 16


def simulate_market(rng):
    """Momentum regimes with correlated shocks; returns a (days, assets) price table."""
    loading = rng.normal(scale=0.004, size=(3, ASSETS))
    drift = np.zeros(ASSETS)
    log_price = np.zeros((DAYS, ASSETS))
    for day in range(1, DAYS):
        if rng.random() < 0.05:
            drift = rng.normal(scale=0.003, size=ASSETS)
        shock = rng.normal(size=3) @ loading + rng.normal(scale=0.006, size=ASSETS)
        log_price[day] = log_price[day - 1] + drift + shock
    return np.exp(log_price).astype(np.float32)


class Market:
    """Price history on the device; hands out normalised windows and next-day growth."""

    def __init__(self, prices, device):
        self.prices = torch.from_numpy(prices).to(device)
        self.growth = self.prices[1:] / self.prices[:-1]

    def window(self, day):
        past = self.prices[day - LOOKBACK:day]
        return (past / past[-1:] - 1.0) * 20

    def next_growth(self, day):
        return self.growth[day - 1]


class Policy(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(1, 8, 5, stride=2), nn.ReLU(),
                                  nn.Conv1d(8, hidden, 5, stride=2), nn.ReLU())
        self.score = nn.Linear(hidden + 1, 1)
        self.cash = nn.Parameter(torch.zeros(1))

    def forward(self, window, held):
        per_asset = self.conv(window.t()[:, None, :]).mean(-1)
        scores = self.score(torch.cat([per_asset, held[:ASSETS, None]], dim=1)).squeeze(1)
        return torch.softmax(torch.cat([scores, self.cash]), dim=0)


def rollout(policy, market, start, device, horizon=HORIZON):
    """Log growth of an episode, with turnover costs."""
    held = torch.zeros(ASSETS + 1, device=device)
    held[ASSETS] = 1.0
    one = torch.ones(1, device=device)
    log_growth = torch.zeros((), device=device)
    for day in range(start, start + horizon):
        weights = policy(market.window(day), held)
        turnover = (weights - held).abs().sum()
        grown = weights * torch.cat([market.next_growth(day), one])
        total = grown.sum()
        log_growth = log_growth + torch.log(total) - COST * turnover
        held = grown / total
    return log_growth


def sharpe(returns):
    return float(np.mean(returns) / (np.std(returns) + 1e-9) * np.sqrt(252 / HORIZON))


def main():
    rng = np.random.default_rng(17)
    torch.manual_seed(17)
    device = torch_xla.device()
    market = Market(simulate_market(rng), device)
    policy = Policy().to(device)
    opt = torch.optim.Adam(policy.parameters(), lr=3e-3)

    rewards = []
    for episode in range(1, EPISODES + 1):
        start = int(rng.integers(LOOKBACK, TRAIN_DAYS - HORIZON))
        opt.zero_grad()
        reward = rollout(policy, market, start, device)
        (-reward).backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        xm.optimizer_step(opt)
        rewards.append(reward.detach())
        xm.mark_step()
        if episode % 8 == 0:
            mean = torch.stack(rewards[-8:]).mean().item()
            print(f"episode {episode}: mean log growth {mean:+.5f}")

    out_of_sample = []
    with torch.no_grad():
        for start in range(TRAIN_DAYS, DAYS - HORIZON, HORIZON):
            out_of_sample.append(rollout(policy, market, start, device))
            xm.mark_step()
    returns = torch.stack(out_of_sample).cpu().numpy()
    print(f"held-out growth {np.exp(returns.sum()):.4f}, Sharpe {sharpe(returns):.2f}")


if __name__ == "__main__":
    main()
