"""PPO on vectorised balance tasks: rollouts on the host's copy of the policy, minibatch updates on the device."""
import copy

import torch
import torch.nn as nn

import torch_xla

ENVS, HORIZON, EPOCHS, MINIBATCHES, ITERATIONS, TARGET_KL = 16, 16, 4, 4, 5, 0.5


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 24), nn.Tanh())
        self.pi, self.v = nn.Linear(24, 2), nn.Linear(24, 1)

    def forward(self, obs):
        h = self.body(obs)
        return self.pi(h).log_softmax(-1), self.v(h).squeeze(-1)


class LineWorld:
    def __init__(self):
        self.state = torch.randn(ENVS, 4) * 0.1

    def step(self, action):
        push = action.float() * 2 - 1
        self.state[:, 1] += 0.1 * push + 0.05 * self.state[:, 0]
        self.state[:, 0] += 0.1 * self.state[:, 1]
        done = self.state[:, 0].abs() > 1
        reward = 1 - self.state[:, 0].abs()
        self.state[done] = torch.randn(int(done.sum()), 4) * 0.1
        return self.state.clone(), reward, done.float()


@torch.no_grad()
def rollout(env, policy):
    obs, rows = env.state.clone(), []
    for _ in range(HORIZON):
        logp, value = policy(obs)
        action = torch.multinomial(logp.exp(), 1).squeeze(1)
        nxt, reward, done = env.step(action)
        rows.append((obs, action, logp.gather(1, action[:, None])[:, 0], value, reward, done))
        obs = nxt
    obs, action, logp, value, reward, done = (torch.stack(c) for c in zip(*rows))
    ret, running = torch.zeros_like(reward), policy(nxt)[1]
    for t in reversed(range(HORIZON)):
        running = reward[t] + 0.95 * running * (1 - done[t])
        ret[t] = running
    adv = ret - value
    return [t.flatten(0, 1) for t in (obs, action, logp, ret, (adv - adv.mean()) / (adv.std() + 1e-6))], reward.mean()


def update(model, opt, data, device, clip):
    size = len(data[0]) // MINIBATCHES
    kl_sum = torch.zeros((), device=device)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(data[0])).split(size):
            obs, action, old, ret, adv = (t[rows].to(device) for t in data)
            logp, value = model(obs)
            new = logp.gather(1, action[:, None])[:, 0]
            ratio = (new - old).exp()
            surrogate = torch.min(ratio * adv, ratio.clamp(1 - clip, 1 + clip) * adv)
            loss = -surrogate.mean() + 0.5 * (value - ret).square().mean() + 0.01 * (logp * logp.exp()).sum(-1).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            kl_sum += (old - new).mean().detach()
            torch_xla.sync()
    return kl_sum


def main():
    torch.manual_seed(0)
    device = torch_xla.device()
    model = ActorCritic().to(device)
    host = copy.deepcopy(model).to("cpu")
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    decay = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.2, ITERATIONS)
    env = LineWorld()
    torch_xla.sync()
    for it in range(ITERATIONS):
        data, reward = rollout(env, host)
        kl = update(model, opt, data, device, clip=0.2 - 0.01 * it)
        host.load_state_dict(model.state_dict())
        decay.step()
        kl = kl.item() / (EPOCHS * MINIBATCHES)
        print(f"iteration {it} reward {reward:.3f} kl {kl:.4f}")
        if kl > TARGET_KL:
            break


if __name__ == "__main__":
    main()
